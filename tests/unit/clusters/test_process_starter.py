import contextlib
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from flambeau.clusters import process_starter
from flambeau.clusters.base import Launch
from flambeau.clusters.fork_server import MOST_AGENTS
from flambeau.clusters.process_starter import (
    Fork,
    Forking,
    ForkServer,
    Process,
    Spawning,
    Starter,
    close_fork_servers,
    fork_server_for,
    whole_environment,
)
from flambeau.coordination.payloads import ScriptPayload

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
        read_end, lifeline = os.pipe()
        os.write(lifeline, command.encode())
        self._lives.append(lifeline)
        process = self.starter.start(read_end, {"OMP_NUM_THREADS": "1", **environment})
        os.close(read_end)
        return process

    def close(self) -> None:
        close_fork_servers()
        for lifeline in self._lives:
            os.close(lifeline)


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    (tmp_path / "a_role.py").write_text(ROLE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setenv("COLOUR", "red")
    return Launch("", b"", "a_role", ScriptPayload("none.py"), preload=("numpy", "no_such_module"))


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
    for number in range(12):  # some of these are numbers that a fork server uses itself
        (tmp_path / str(number)).write_text(f"file {number}")
        files.append(os.open(tmp_path / str(number), os.O_RDONLY))
    machine = Machine(kind(msgspec.structs.replace(launch, fds=tuple(files))))
    seen = told(machine.start("tell", GIVEN=" ".join(map(str, files))))
    assert seen["given"] == [f"file {number}" for number in range(12)]
    machine.close()
    for file in files:
        os.close(file)


def test_the_next_job_finds_the_fork_server_loaded_and_its_own_environment(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Machine(Forking(launch))
    told(before.start("tell"))
    (fork_server,) = psutil.Process().children()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLOUR", "blue")
    after = Machine(Forking(launch))
    seen = told(after.start("tell"))
    assert (seen["colour"], seen["folder"]) == ("blue", str(tmp_path))
    assert psutil.Process().children() == [fork_server]
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


def test_forks_end_with_their_fork_server_and_the_next_gets_a_new_one(forking: Machine) -> None:
    role = forking.start("wait")
    assert role.stdout is not None
    role.stdout.readline()
    wait_until(lambda: role.poll() is not None or role.pid is not None)
    assert isinstance(role, Fork)
    assert role.pid is not None
    fork_server = psutil.Process(role.pid).parent()
    assert fork_server is not None
    fork_server.kill()
    assert exit_code(role) == -signal.SIGKILL
    wait_until(lambda: not psutil.pid_exists(role.pid or 0))
    assert exit_code(forking.start("5")) == 5


def test_nothing_is_left_when_it_is_closed_while_the_fork_server_loads(forking: Machine) -> None:
    role = forking.start("wait")
    close_fork_servers()
    assert exit_code(role) == -signal.SIGKILL
    assert not psutil.Process().children()


END_OF_AN_AGENT = """
import os, signal, socket
from flambeau.clusters.fork_server import Forker
agent, ours = socket.socketpair()
agent.close()
assert Forker(None, ours).serve() is None
os.kill(os.getpid(), signal.SIGCHLD)
"""


def test_forks_that_end_after_their_agent_leave_no_message() -> None:
    done = subprocess.run([sys.executable, "-c", END_OF_AN_AGENT], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_agents_of_one_executor_share_a_fork_server(launch: Launch) -> None:
    shared = msgspec.structs.replace(launch, siblings=f"tests {os.getpid()}")
    environment = whole_environment({"OMP_NUM_THREADS": "1", "GIVEN": ""})
    machines, roles = [], []
    for _ in range(2):
        process_starter._fork_servers.clear()  # as if it were another process
        machines.append(fork_server_for(shared, environment))
        read_end, lifeline = os.pipe()
        os.write(lifeline, b"wait")
        roles.append(machines[-1].fork("a_role", read_end, (), environment))
        assert roles[-1].stdout.readline() == b"ready\n"
        wait_until(lambda: roles[-1].poll() is not None or roles[-1].pid is not None)
    pids = [role.pid or 0 for role in roles]
    (fork_server,) = {psutil.Process(pid).parent() for pid in pids}
    assert fork_server is not None
    machines[0].close()
    assert exit_code(roles[0]) == -signal.SIGKILL
    wait_until(lambda: not psutil.pid_exists(pids[0]))
    assert roles[1].poll() is None
    machines[1].close()
    wait_until(lambda: not fork_server.is_running() or fork_server.status() == psutil.STATUS_ZOMBIE)
    close_fork_servers()
    assert not psutil.Process().children()
    assert exit_code(roles[1]) == -signal.SIGKILL


COMMAND = """
import json, os, sys
from flambeau.clusters.base import Launch
from flambeau.clusters.process_starter import fork_server_for, whole_environment
environment = whole_environment({"OMP_NUM_THREADS": "1", "GIVEN": ""})
server = fork_server_for(Launch("", b"", "a_role", {}, python_path=()), environment)
read_end, lifeline = os.pipe()
os.write(lifeline, b"7")
role = server.fork("a_role", read_end, (), environment)
while role.poll() is None:
    pass
print(json.dumps({"code": role.returncode, "own": server._process is not None}))
"""


def test_a_fork_server_can_stay_for_the_next_command(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAMBEAU_KEEP_LOADED", "60")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    command = [sys.executable, "-c", COMMAND]
    # The pipes of a command that has ended are closed, also those of its errors.
    ended = [subprocess.run(command, capture_output=True, text=True) for _ in range(2)]
    assert [json.loads(each.stdout) for each in ended] == [
        {"code": 7, "own": True},
        {"code": 7, "own": False},
    ]
    servers = [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(tmp_path) in word for word in process.info["cmdline"] or ())
    ]
    assert len(servers) == 1
    servers[0].kill()
    servers[0].wait(timeout=30)


def test_a_fork_server_of_one_process_listens_nowhere(forking: Machine) -> None:
    told(forking.start("tell"))
    (fork_server,) = psutil.Process().children()
    listens = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    listening = {f"socket:[{words[6]}]" for words in listens if words[5] == "01"}
    held = {os.readlink(each) for each in Path(f"/proc/{fork_server.pid}/fd").iterdir()}
    assert any(each.startswith("socket:") for each in held)
    assert not held & listening


class SharedForkServer:
    """A fork server that is found by its folder, and this process as one of its agents."""

    def __init__(self, launch: Launch, temporary: Path) -> None:
        self._launch = msgspec.structs.replace(launch, siblings="tests")
        self.environment = whole_environment({"OMP_NUM_THREADS": "1", "GIVEN": ""})
        self._temporary, self._connections = temporary, list[socket.socket]()
        self.agent = self.another_agent()
        assert self.agent._process is not None
        self.process = psutil.Process(self.agent._process.pid)
        self.serves()  # so that it has loaded what it will

    def another_agent(self) -> ForkServer:
        process_starter._fork_servers.clear()  # as if it were another process
        return self.same_agent()

    def same_agent(self) -> ForkServer:
        return fork_server_for(self._launch, self.environment)

    @property
    def folder(self) -> Path:
        (folder,) = self._temporary.iterdir()
        return folder

    def serves(self) -> None:
        """The agent gets a role, which ends as it should."""
        read_end, lifeline = os.pipe()
        os.write(lifeline, b"7")
        role = self.agent.fork("a_role", read_end, (), self.environment)
        assert exit_code(role) == 7
        os.close(lifeline)
        os.close(read_end)

    def connect(self, times: int) -> None:
        for _ in range(times):
            self._connections.append(socket.socket(socket.AF_UNIX))
            self._connections[-1].connect(str(self.folder / "socket"))

    def closed(self) -> int:
        """How many of these connections the fork server has closed; they are told nothing else."""
        ready, _, _ = select.select(self._connections, [], [], 0)
        assert not any(each.recv(100) for each in ready)
        return len(ready)

    def close(self) -> None:
        for each in self._connections:
            each.close()
        self._connections.clear()
        self.agent.close()
        wait_until(lambda: not self.process.is_running() or self.process.status() == "zombie")
        close_fork_servers()


@pytest.fixture
def shared(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SharedForkServer]:
    temporary = tmp_path / ("long" * 40)  # longer than the path of a socket may be
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with contextlib.chdir(temporary):
        shared = SharedForkServer(launch, Path("."))
        yield shared
        shared.close()


def test_a_shared_fork_server_is_in_a_folder_of_its_user_and_takes_it_along(
    shared: SharedForkServer,
) -> None:
    assert stat.S_IMODE(shared.folder.stat().st_mode) == 0o700
    shared.close()
    assert not list(Path(".").iterdir())


def test_what_a_killed_fork_server_has_left_is_used_again(shared: SharedForkServer) -> None:
    shared.process.kill()
    wait_until(lambda: shared.process.status() == "zombie")
    shared.agent.close()
    shared.agent = shared.another_agent()
    assert shared.agent._process is not None
    shared.process = psutil.Process(shared.agent._process.pid)
    shared.serves()


@pytest.mark.parametrize("same_agent", [True, False])
def test_a_frozen_fork_server_is_not_asked(
    shared: SharedForkServer, monkeypatch: pytest.MonkeyPatch, same_agent: bool
) -> None:
    monkeypatch.setattr(process_starter, "FROZEN_SECONDS", 0.2)
    frozen = shared.agent
    shared.process.suspend()
    wait_until(lambda: shared.process.status() == psutil.STATUS_STOPPED)
    shared.agent = shared.same_agent() if same_agent else shared.another_agent()
    assert shared.agent is not frozen
    shared.serves()
    shared.agent.close()
    shared.process.resume()
    shared.agent = frozen
    if not same_agent:  # the connection to the frozen one is still there
        shared.serves()


def test_it_serves_on_when_more_connect_than_it_lets_in(shared: SharedForkServer) -> None:
    shared.connect(MOST_AGENTS + 20)
    wait_until(lambda: shared.closed() == 21)  # one is the agent
    shared.serves()


def test_it_serves_on_after_it_had_no_descriptor_left(shared: SharedForkServer) -> None:
    _, most = shared.process.rlimit(psutil.RLIMIT_NOFILE)
    few = shared.process.num_fds() + 10
    shared.process.rlimit(psutil.RLIMIT_NOFILE, (few, most))
    shared.connect(50)
    wait_until(lambda: shared.closed() >= 35)
    shared.process.rlimit(psutil.RLIMIT_NOFILE, (most, most))
    shared.serves()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("closed", [True, False])
def test_another_user_gets_no_answer(shared: SharedForkServer, closed: bool) -> None:
    folder, reached = shared.folder.resolve(), tempfile.mkdtemp(dir="/tmp")
    os.chmod(reached, 0o711)
    place = Path(reached) / "folder"
    folder.rename(place)  # below folders that everybody may enter
    if not closed:
        place.chmod(0o711)
        (place / "socket").chmod(0o777)
    answer = subprocess.run(
        [sys.executable, "-c", STRANGER, place / "socket"], capture_output=True, text=True
    )
    place.chmod(0o700)
    place.rename(folder)
    os.rmdir(reached)
    assert answer.stdout == ("PermissionError\n" if closed else "b''\n"), answer.stderr
    shared.serves()


STRANGER = """
import os, socket, sys
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
with socket.socket(socket.AF_UNIX) as connection:
    connection.settimeout(30)
    try:
        connection.connect(sys.argv[1])
        print(connection.recv(100))
    except PermissionError:
        print("PermissionError")
"""


def test_a_folder_that_others_can_enter_is_not_used(shared: SharedForkServer) -> None:
    shared.folder.chmod(0o750)
    other = shared.another_agent()
    assert other._process is not None
    assert other._process.pid != shared.process.pid
    shared.folder.chmod(0o700)
    other.close()
