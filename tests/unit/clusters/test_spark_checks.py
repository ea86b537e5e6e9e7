"""What is found out before Spark is asked for anything."""

import resource
import subprocess
import sys

import pytest

from flambeau.clusters.base import AgentEnded
from flambeau.clusters.spark.cluster import (
    driver_host,
    loss_of,
    raise_mistake,
    reason_of,
    require_slots,
    slots_of,
    use_own_python,
)
from flambeau.config import Spark
from flambeau.errors import ConfigError


class Session:
    """Stands in for a session of a cluster that cannot be had here: only its settings are asked."""

    def __init__(self, **settings: str) -> None:
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.conf = self

    def get(self, name: str, default: str) -> str:
        return self._settings.get(name, default)


@pytest.mark.parametrize(
    ("master", "cpus", "slots"),
    [
        ("local", 1, 1),
        ("local[4]", 1, 4),
        ("local[4]", 2, 2),
        ("local[4, 3]", 1, 4),
        ("local-cluster[2,3,1024]", 1, 6),
        ("local-cluster[2,3,1024]", 2, 2),
        ("yarn", 1, None),
        ("spark://host:7077", 1, None),
        ("k8s://https://host", 1, None),
    ],
)
def test_slots(master: str, cpus: int, slots: int | None) -> None:
    assert slots_of(master, cpus) == slots


def test_too_few_slots() -> None:
    session = Session(spark_master="local-cluster[2,1,1024]")
    require_slots(session, 2)
    with pytest.raises(ConfigError, match=r"Spark\(3\): this session runs 2 tasks at a time"):
        require_slots(session, 3)


def test_executors_that_come_and_go() -> None:
    session = Session(spark_master="yarn", spark_dynamicAllocation_enabled="true")
    with pytest.raises(ConfigError, match=r"spark\.executor\.instances"):
        require_slots(session, 2)


@pytest.mark.parametrize(
    ("session", "host"),
    [
        (Session(spark_master="local[2]", spark_driver_host="10.1.2.3"), "127.0.0.1"),
        (Session(spark_master="yarn", spark_driver_host="10.1.2.3"), "10.1.2.3"),
    ],
)
def test_where_executors_find_the_driver(session: Session, host: str) -> None:
    assert driver_host(Spark(2, session=session)) == host
    assert driver_host(Spark(2, session=session, host="10.9.9.9")) == "10.9.9.9"


def test_another_python() -> None:
    with pytest.raises(ConfigError, match="PYSPARK_PYTHON"):
        raise_mistake(RuntimeError("[PYTHON_VERSION_MISMATCH] Python in worker has another"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("An error occurred\nTraceback ...\nKeyError: 'x'\n\tat org.a.b", "KeyError: 'x'"),
        (
            "Job aborted. ExecutorLostFailure (executor 1 exited) Reason: killed\nmore",
            "ExecutorLostFailure (executor 1 exited) Reason: killed",
        ),
        ("\n  Something else\nmore", "Something else"),
        ("", "RuntimeError"),
    ],
)
def test_the_reason_in_one_line(text: str, reason: str) -> None:
    error = RuntimeError(text)
    raise_mistake(error)  # it is none of the user's
    assert reason_of(error) == reason


def test_the_task_and_the_executor_that_were_lost() -> None:
    text = (
        "Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. "
        "Most recent failure reason: Stage failed because barrier task ResultTask(4, 1) finished "
        "unsuccessfully.\nExecutorLostFailure (executor 0 exited caused by one of the running "
        "tasks) Reason: Command exited with code 137"
    )
    lost = loss_of(RuntimeError(text))
    assert (lost.agent, lost.place) == (1, "0")
    assert lost.reason.startswith("ExecutorLostFailure (executor 0 exited")
    assert loss_of(RuntimeError("Job 3 cancelled")) == AgentEnded("Job 3 cancelled")


class Context:
    """Stands in for a context that runs another Python."""

    pythonExec = "python3"  # noqa: N815 - Spark's name


@pytest.mark.parametrize(
    ("settings", "given", "python"),
    [
        ({"spark_master": "local[2]"}, None, sys.executable),
        ({"spark_master": "local-cluster[2,1,1024]"}, None, sys.executable),
        ({"spark_master": "yarn"}, None, "python3"),
        ({"spark_master": "local"}, "/other/python", "python3"),
        ({"spark_master": "local", "spark_pyspark_python": "/other/python"}, None, "python3"),
    ],
)
def test_which_python_workers_run(
    settings: dict[str, str], given: str | None, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", given or "")
    session = Session(**settings)
    session.sparkContext = Context()
    use_own_python(session)
    assert session.sparkContext.pythonExec == python


@pytest.mark.parametrize(("hard", "said"), [(2 << 30, True), (64 << 30, False)])
def test_a_limit_of_addresses(hard: int, said: bool) -> None:
    code = (
        "from flambeau.clusters.spark.task import require_address_space as check\n"
        "from flambeau.errors import ConfigError\n"
        "try:\n check()\nexcept ConfigError as error:\n print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, hard)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ("set it to at least 6g" in done.stdout) is said, done.stderr
