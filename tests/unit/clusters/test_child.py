import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from flambeau.clusters.child_process import ChildSpec, write_message
from flambeau.clusters.open_files import MOST
from flambeau.coordination.payloads import ScriptPayload, Site
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.kernels.cores import usable_cores

ECHO = """
import json, os, resource, signal, sys
NUMBERS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1
before = [signal.getsignal(n) for n in NUMBERS]  # a shell's background job ignores SIGINT
few = 64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, few)
from flambeau.clusters.child_process import attach
child = attach(int(sys.argv[1]))
seen = {
    "secret": child.secret.hex(), "rank": child.spec.rank,
    "program": child.payload.program, "run_dir": child.site.run_dir,
    "last_path": sys.path[-1], "cores": sorted(os.sched_getaffinity(0)),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "signals": ["as before" if signal.getsignal(n) is was else signal.getsignal(n).__name__
                for n, was in zip(NUMBERS, before)],
}
print(json.dumps(seen), flush=True)
sys.stdin.read()
"""

SPEC = RoleSpec(Role.WORKER, rank=3, world=4, local_rank=3, local_world=4, node=0, generation=1)
#: How many files a process may have open at most, however few it begins with.
FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
CORE = usable_cores()[-1:]


class Child:
    """A real process at the other end of a pipe."""

    def __init__(self) -> None:
        read_end, self.lifeline = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ECHO, str(read_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(read_end,),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
        os.close(read_end)
        self.attached = True

    def let_go(self) -> None:
        if self.attached:
            os.close(self.lifeline)
            self.attached = False


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child()
    yield child
    child.let_go()
    child.process.kill()
    child.process.communicate()


def make_spec(size: int, role: Role = Role.WORKER) -> ChildSpec:
    return ChildSpec(
        coordinator="tcp://127.0.0.1:1",
        secret=b"\x00\xff",
        spec=msgspec.structs.replace(SPEC, role=role),
        payload=ScriptPayload("x" * size),
        site=Site("runs/mine"),
        python_path=["/added/by/the/agent"],
        cores=CORE,
    )


def test_a_child_is_told_all_and_ends_with_its_agent(child: Child) -> None:
    size = 200_000  # more than a pipe holds at once
    write_message(child.lifeline, make_spec(size))
    assert child.process.stdout is not None
    seen = json.loads(child.process.stdout.readline())
    assert seen == {
        "secret": "00ff",
        "rank": 3,
        "program": "x" * size,
        "run_dir": "runs/mine",
        "last_path": "/added/by/the/agent",
        "cores": CORE,
        "files": [min(FILES, MOST), FILES],
        "signals": ["_do_nothing"] * 4,
    }
    assert child.process.poll() is None
    child.let_go()
    assert child.process.wait(timeout=30) == -signal.SIGKILL


def test_a_script_has_the_signal_handlers_of_any_python_program(child: Child) -> None:
    write_message(child.lifeline, make_spec(1, Role.SCRIPT))
    assert child.process.stdout is not None
    seen = json.loads(child.process.stdout.readline())
    assert seen["signals"] == ["as before"] * 4


def test_a_child_whose_agent_ends_before_it_speaks_says_so(child: Child) -> None:
    child.let_go()
    _, errors = child.process.communicate(timeout=30)
    assert child.process.returncode == 1
    assert b"the agent exited before it sent this process its role" in errors
