import os
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau.clusters import machine
from flambeau.clusters.machine import fork_siblings, machine_identity

COORDINATOR = "tcp://127.0.0.1:1"


def test_processes_of_one_machine_have_the_same_identity() -> None:
    code = "from flambeau.clusters.machine import *; print(machine_identity())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == machine_identity()


def test_another_boot_and_another_container_are_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = machine_identity()
    with monkeypatch.context() as patch:
        patch.setattr(os, "readlink", lambda path: "pid:[1]")
        assert machine_identity() != here
    (tmp_path / "boot_id").write_text("another")
    monkeypatch.setattr(machine, "_BOOT_ID", tmp_path / "boot_id")
    assert machine_identity() != here


def test_agents_of_one_job_machine_and_set_of_cores_fork_from_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = fork_siblings("one", COORDINATOR)
    assert fork_siblings("one", COORDINATOR) == here
    assert fork_siblings("two", COORDINATOR) != here
    assert fork_siblings("one", "tcp://127.0.0.1:2") != here
    monkeypatch.setattr(machine, "usable_cores", lambda: [10_000])
    assert fork_siblings("one", COORDINATOR) != here
