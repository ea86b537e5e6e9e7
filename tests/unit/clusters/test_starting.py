import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from flambeau.clusters.base import Launch
from flambeau.clusters.starting import Fork, Forking, Process, Spawning, Starter

PATIENCE = 30.0

ROLE = """
import json, os, random, sys, numpy
command = os.read(int(sys.argv[1]), 100).decode()
if command == "tell":
    seen = {
        "loaded": sys.modules["numpy"].__name__, "main": __name__, "group": os.getpgid(0),
        "colour": os.environ.get("COLOUR"), "threads": os.environ["OMP_NUM_THREADS"],
        "random": [random.random(), numpy.random.rand()],
        "open": sorted(os.listdir("/proc/self/fd")),
    }
    print(json.dumps(seen))
    print("and an error", file=sys.stderr)
elif command == "wait":
    print("ready")
    os.read(int(sys.argv[1]), 100)
else:
    sys.exit(int(command))
"""


class Machine:
    """Starts roles whose code is a module of the test."""

    def __init__(self, starter: Starter) -> None:
        self.starter = starter
        self._lives: list[int] = []

    def start(self, command: str, **environment: str) -> Process:
        read_end, life = os.pipe()
        os.write(life, command.encode())
        self._lives.append(life)
        process = self.starter.start(read_end, {"OMP_NUM_THREADS": "1", **environment})
        os.close(read_end)
        return process

    def close(self) -> None:
        self.starter.close()
        for life in self._lives:
            os.close(life)


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    (tmp_path / "a_role.py").write_text(ROLE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setenv("COLOUR", "red")
    return Launch("", b"", "a_role", {}, preload=("numpy", "no_such_module"))


@pytest.fixture(params=[Forking, Spawning])
def machine(launch: Launch, request: pytest.FixtureRequest) -> Iterator[Machine]:
    machine = Machine(request.param(launch))
    yield machine
    machine.close()


@pytest.fixture
def forking(launch: Launch) -> Iterator[Machine]:
    machine = Machine(Forking(launch))
    yield machine
    machine.close()


def wait_until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def exit_code(process: Process) -> int | None:
    wait_until(lambda: process.poll() is not None)
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    return process.returncode


def told(process: Process) -> dict[str, object]:
    assert process.stdout is not None
    assert process.stderr is not None
    seen: dict[str, object] = json.loads(process.stdout.read())
    assert process.stderr.read() == b"and an error\n"
    assert exit_code(process) == 0
    return seen


def test_a_role_is_its_module_with_its_environment_in_a_group_of_its_own(machine: Machine) -> None:
    process = machine.start("tell", OMP_NUM_THREADS="3")
    seen = told(process)
    assert seen["main"] == "__main__"
    assert (seen["colour"], seen["threads"]) == ("red", "3")
    assert seen["group"] == process.pid


def test_exit_codes_are_those_of_the_roles(machine: Machine) -> None:
    processes = [machine.start(str(code)) for code in (0, 7)]
    assert [exit_code(process) for process in processes] == [0, 7]


def test_a_killed_role_is_known_by_its_signal(machine: Machine) -> None:
    process = machine.start("wait")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    assert process.poll() is None
    assert process.pid is not None
    os.killpg(process.pid, signal.SIGKILL)
    assert exit_code(process) == -signal.SIGKILL


def test_forks_do_not_share_random_numbers_or_descriptors(forking: Machine) -> None:
    first, second = told(forking.start("tell")), told(forking.start("tell"))
    numbers = [number for seen in (first, second) for number in seen["random"]]  # type: ignore[attr-defined]
    assert len(set(numbers)) == 4
    assert first["open"] == second["open"]


def test_forks_end_with_their_template_and_the_next_gets_a_new_one(forking: Machine) -> None:
    role = forking.start("wait")
    assert role.stdout is not None
    role.stdout.readline()
    wait_until(lambda: role.poll() is not None or role.pid is not None)
    assert isinstance(role, Fork)
    assert role.pid is not None
    template = psutil.Process(role.pid).parent()
    assert template is not None
    template.kill()
    assert exit_code(role) == -signal.SIGKILL
    wait_until(lambda: not psutil.pid_exists(role.pid or 0))
    assert exit_code(forking.start("5")) == 5


def test_nothing_is_left_when_it_is_closed_while_the_template_loads(forking: Machine) -> None:
    role = forking.start("wait")
    forking.starter.close()
    assert exit_code(role) == -signal.SIGKILL
    assert not psutil.Process().children()
