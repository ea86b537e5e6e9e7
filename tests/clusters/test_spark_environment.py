"""What the other tests of Spark rely on."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lacking import missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def processes(batches: object) -> object:
    from pyspark import BarrierTaskContext

    BarrierTaskContext.get().barrier()
    yield pa.RecordBatch.from_pydict({"python": [sys.executable], "parent": [os.getppid()]})


def barrier_stage(session: "SparkSession") -> list[tuple[str, int]]:
    frame = session.range(100).repartition(2)
    stage = frame.mapInArrow(processes, "python string, parent long", barrier=True)
    return [(row.python, row.parent) for row in stage.collect()]


def test_two_slots_run_the_python_of_the_tests(spark: "SparkSession") -> None:
    assert [python for python, _ in barrier_stage(spark)] == [sys.executable] * 2


def test_connect_sessions_have_a_process_of_their_own(run_script: Callable[..., str]) -> None:
    printed = run_script("barrier.py", "--remote", "local[2]", connect=True)
    assert printed.endswith(" [100, 100]\n")


def test_spark_35_stands_before_the_newer_one(
    run_script: Callable[..., str], spark_35: Path
) -> None:
    printed = run_script("barrier.py", "local[2]", first=(spark_35,))
    assert printed.startswith("3.5.")
    assert printed.endswith(" [100, 100]\n")


def test_a_missing_part_fails_only_where_everything_has_to_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="no Java: apt-get"):
        missing("no Java", "apt-get")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no Java: apt-get"):
        missing("no Java", "apt-get")
