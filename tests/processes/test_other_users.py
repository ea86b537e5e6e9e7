"""A process of another user, on the same machine as a job: it learns nothing and breaks nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from other_user import GREETING

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")

SECRET = bytes(range(65, 97))
MARKER = "known to the owner of the code alone"
#: More connections than a process may have by default, 1,024.
CROWD = 1200
PATIENCE = 240.0

#: Tables on asynchronous servers, the rest by all-reduce, from a file that only its owner can read.
DRIVER = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
import flambeau as fb
from flambeau.driver.control import controller
from toy import Slow, SparseNet, make_clicks

controller.new_secret = lambda: {SECRET!r}

class Mine(SparseNet):
    def extra_repr(self):
        return {MARKER!r}

fb.fit(
    Mine(), make_clicks(4000), loss="bce", label="label", batch_size=8, epochs=50,
    strategy=fb.Hybrid(servers=2, consistency="asynchronous"), cluster=fb.Local(2),
    checkpoints={{"every_steps": 20}}, observe={{"progress": "lines"}}, callbacks=[Slow(0.02)],
    run_dir=sys.argv[1],
)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that all users can enter, unlike those of pytest."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o755)
    (place / "temporary").mkdir()
    (place / "temporary").chmod(0o1777)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def driver(place: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    script = tmp_path / "train.py"
    script.write_text(DRIVER)
    folders = [str(Path(__file__).parent), *filter(None, sys.path)]
    driver = subprocess.Popen(
        [sys.executable, script, place / "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(folders),
            "TMPDIR": str(place / "temporary"),
        },
    )
    deadline = time.monotonic() + PATIENCE
    while not (place / "run" / "begun").exists():
        assert driver.poll() is None, driver.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    yield driver
    driver.kill()
    driver.communicate()


def processes_of(driver: subprocess.Popen[str]) -> list[int]:
    below = psutil.Process(driver.pid).children(recursive=True)
    return [driver.pid, *(process.pid for process in below)]


def listening(processes: list[int]) -> tuple[set[tuple[str, int]], set[str]]:
    """Addresses of listening TCP sockets of these processes, and names of Unix sockets."""
    links = [link for pid in processes for link in Path(f"/proc/{pid}/fd").iterdir()]
    held = {os.readlink(link) for link in links if os.path.lexists(link)}
    tcp = set()
    for pid in processes:
        for each in psutil.Process(pid).net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN:
                tcp.add((each.laddr.ip, each.laddr.port))
    unix = set()
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "00010000" and f"socket:[{words[6]}]" in held:
            unix.add(words[7])
    return tcp, unix


def as_another_user(**job: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("other_user.py"))],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def says_nothing(answer: bytes) -> bool:
    """Whether an answer is empty, or what ZeroMQ sends whoever connects, and at most a refusal.

    The greeting is the same for every server of any program with ZeroMQ and PLAIN: protocol,
    version and mechanism. A refusal is a status without a text.
    """
    greeting = GREETING[:8] + b"\x01" + GREETING[9:]
    # Older releases of ZeroMQ misspell their own command.
    refusals = b"\x04\x0a\x05ERROR\x03400", b"\x04\x09^RROR\x03400"
    return any((greeting + refusal).startswith(answer) for refusal in refusals)


def test_another_user_gets_no_answer_and_breaks_nothing(
    driver: subprocess.Popen[str], place: Path
) -> None:
    processes = processes_of(driver)
    tcp, unix = listening(processes)
    assert {ip for ip, _ in tcp} == {"127.0.0.1"}
    assert len(tcp) >= 5  # the coordinator, two servers, and gloo on two workers
    found = as_another_user(
        ports=[port for _, port in tcp],
        unix=sorted(unix),
        processes=processes,
        folders=[str(place), *shared_memory(processes)],
        secrets=[SECRET.decode(), SECRET.hex(), MARKER],
        crowd=CROWD,
    )
    assert not [
        name for name, data in found["answers"].items() if not says_nothing(bytes.fromhex(data))
    ]
    assert not found["entered"]
    assert found["crowds"] == [CROWD] * len(tcp)
    assert not found["leaks"]
    assert f"{place}/run/job.yaml" in found["read"]  # it has looked where it could
    private = [name for name in found["read"] if name.startswith("/proc/")]
    assert {name.rsplit("/", 1)[1] for name in private} == {"cmdline"}
    assert not [name for name in found["read"] if name.startswith(f"{place}/run/code/")]

    driver.send_signal(signal.SIGINT)
    output, _ = driver.communicate(timeout=PATIENCE)
    report = json.loads((place / "run" / "report.json").read_text())
    assert (report["status"], report["restarts"]) == ("stopped", 0), output


def shared_memory(processes: list[int]) -> list[str]:
    """Files in /dev/shm that these processes have open or mapped."""
    found = set()
    for pid in processes:
        for each in psutil.Process(pid).memory_maps(grouped=False):
            if each.path.startswith("/dev/shm/"):
                found.add(each.path)
    return sorted(found)
