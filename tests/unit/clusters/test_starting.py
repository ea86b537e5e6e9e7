import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from flambeau.clusters import starting
from flambeau.clusters.base import Launch
from flambeau.clusters.starting import (
    Fork,
    Forking,
    Process,
    Spawning,
    Starter,
    close_templates,
    template_for,
    whole_environment,
)

PATIENCE = 30.0

ROLE = """
import json, os, random, sys, numpy
command = os.read(int(sys.argv[1]), 100).decode()
if command == "tell":
    seen = {
        "loaded": sys.modules["numpy"].__name__, "main": __name__, "group": os.getpgid(0),
        "colour": os.environ.get("COLOUR"), "threads": os.environ["OMP_NUM_THREADS"],
        "random": [random.random(), numpy.random.rand()],
        "open": sorted(os.listdir("/proc/self/fd")), "folder": os.getcwd(),
        "given": [os.pread(int(fd), 100, 0).decode() for fd in os.environ["GIVEN"].split()],
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
        environment.setdefault("GIVEN", "")
        read_end, life = os.pipe()
        os.write(life, command.encode())
        self._lives.append(life)
        process = self.starter.start(read_end, {"OMP_NUM_THREADS": "1", **environment})
        os.close(read_end)
        return process

    def close(self) -> None:
        close_templates()
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
    assert seen["folder"] == os.getcwd()


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


@pytest.mark.parametrize("kind", [Forking, Spawning])
def test_descriptors_keep_their_numbers(launch: Launch, tmp_path: Path, kind: type) -> None:
    files = []
    for number in range(12):  # whatever numbers a template uses itself, some of these are the same
        (tmp_path / str(number)).write_text(f"file {number}")
        files.append(os.open(tmp_path / str(number), os.O_RDONLY))
    machine = Machine(kind(dataclasses.replace(launch, fds=tuple(files))))
    seen = told(machine.start("tell", GIVEN=" ".join(map(str, files))))
    assert seen["given"] == [f"file {number}" for number in range(12)]
    machine.close()
    for file in files:
        os.close(file)


def test_the_next_job_finds_the_template_loaded_and_its_own_surroundings(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Machine(Forking(launch))
    told(before.start("tell"))
    (template,) = psutil.Process().children()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLOUR", "blue")
    after = Machine(Forking(launch))
    seen = told(after.start("tell"))
    assert (seen["colour"], seen["folder"]) == ("blue", str(tmp_path))
    assert psutil.Process().children() == [template]
    monkeypatch.setenv("NUMBA_THREADING_LAYER", "omp")  # read when numba is loaded
    told(Machine(Forking(launch)).start("tell"))
    assert len(psutil.Process().children()) == 2
    before.close()
    assert not psutil.Process().children()


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
    close_templates()
    assert exit_code(role) == -signal.SIGKILL
    assert not psutil.Process().children()


def test_agents_of_one_executor_share_a_template(launch: Launch) -> None:
    shared = dataclasses.replace(launch, siblings=f"tests {os.getpid()}")
    environment = whole_environment({"OMP_NUM_THREADS": "1", "GIVEN": ""})
    machines, roles = [], []
    for _ in range(2):
        starting._templates.clear()  # as if it were another process
        machines.append(template_for(shared, environment))
        read_end, life = os.pipe()
        os.write(life, b"wait")
        roles.append(machines[-1].fork("a_role", read_end, (), environment))
        assert roles[-1].stdout.readline() == b"ready\n"
        wait_until(lambda: roles[-1].poll() is not None or roles[-1].pid is not None)
    pids = [role.pid or 0 for role in roles]
    (template,) = {psutil.Process(pid).parent() for pid in pids}
    assert template is not None
    machines[0].close()
    assert exit_code(roles[0]) == -signal.SIGKILL
    wait_until(lambda: not psutil.pid_exists(pids[0]))
    assert roles[1].poll() is None
    machines[1].close()
    wait_until(lambda: not template.is_running() or template.status() == psutil.STATUS_ZOMBIE)
    close_templates()
    assert not psutil.Process().children()
    assert exit_code(roles[1]) == -signal.SIGKILL


def test_a_template_of_another_user_is_not_used(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = iter([os.getuid() + 1])
    monkeypatch.setattr(starting, "peer_user", lambda connection: next(stranger, os.getuid()))
    machine = Machine(Forking(dataclasses.replace(launch, siblings=f"strangers {os.getpid()}")))
    told(machine.start("tell"))
    assert not list(stranger)
    machine.close()
