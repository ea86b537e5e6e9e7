"""Tests of this tier start real processes; none of them may leave anything behind."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from flambeau.clusters.fork_server import KEEP_LOADED
from flambeau.clusters.process_starter import FORK_SERVER_MODULE
from shared_memory import shared, still_shared

#: How long processes may take to end that nobody waits for, on a busy machine.
END_SECONDS = 10.0


def _children() -> set[int]:
    """All that hangs below this process, but for fork servers, which wait for the next job.

    Any of them may end while they are listed, and is a zombie until somebody looks for it.
    """
    own = psutil.Process().children()
    below = [each for child in own for each in _or(child.children, [], recursive=True)]
    return {each.pid for each in own if _runs(each) and not _is_fork_server(each)} | {
        each.pid for each in below if _runs(each)
    }


def _runs(process: psutil.Process) -> bool:
    return _or(process.status, psutil.STATUS_ZOMBIE) != psutil.STATUS_ZOMBIE


def _is_fork_server(process: psutil.Process) -> bool:
    return FORK_SERVER_MODULE in _or(process.cmdline, [FORK_SERVER_MODULE])


def _or(ask: Callable[..., Any], ended: Any, **options: Any) -> Any:
    """The answer about a process, or `ended` of one that has ended meanwhile."""
    try:
        return ask(**options)
    except psutil.NoSuchProcess:  # a zombie, too
        return ended


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the fork servers of commands are, which stay for the next command."""
    folder = tmp_path_factory.mktemp("runtime")
    yield folder
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in word for word in process.info["cmdline"] or ()):
            _or(process.kill, None)
            _or(process.wait, None, timeout=30)


@pytest.fixture(scope="module")
def loaded_once(runtime: Path) -> Iterator[None]:
    """Have the commands that a module starts load their libraries once, not each of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEEP_LOADED, "60")
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        yield


def _is_kept(process: psutil.Process, runtime: str | None) -> bool:
    """Whether this is a fork server that stays; its forks look alike, but for their parent."""
    command = process.info["cmdline"] or []
    kept = runtime is not None and any(word.startswith(runtime) for word in command)
    parent = _or(process.parent, None) if kept else None
    return kept and not (parent is not None and _is_fork_server(parent))


def _roles(temporary: Path) -> dict[int, str]:
    """Live processes that this test started, wherever in the tree they hang by now."""
    found = {}
    for process in psutil.process_iter(["pid", "ppid", "cmdline", "status", "environ"]):
        ours = (process.info["environ"] or {}).get("TMPDIR") == str(temporary)
        command = process.info["cmdline"] or []
        waits = process.info["ppid"] == os.getpid() and FORK_SERVER_MODULE in command
        waits = waits or _is_kept(process, os.environ.get("XDG_RUNTIME_DIR"))
        ended = process.info["status"] == psutil.STATUS_ZOMBIE
        if ours and not ended and not waits and process.pid != os.getpid():
            found[process.pid] = " ".join(command)
    return found


def _still_running(temporary: Path) -> dict[int, str]:
    """Those that do not end by themselves: a fork server that agents share ends after the last."""
    deadline = time.monotonic() + END_SECONDS
    while (found := _roles(temporary)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _listening() -> set[int]:
    return {
        connection.laddr.port
        for connection in psutil.Process().net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


@pytest.fixture(autouse=True)
def nothing_left(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """No process, port, descriptor, temporary file or shared memory is left by a test."""
    # Asked for before there is another place for temporary files. torch keeps the folder of its
    # compiler in the environment, for all processes that are started later: it outlives the test.
    compiler = tmp_path_factory.getbasetemp() / "torchinductor"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(compiler))
    # Not in the test's own folder, whose name may be too long for sockets.
    temporary = Path(tempfile.mkdtemp(prefix="flambeau-"))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = _children(), _listening(), shared()
    yield
    assert not _still_running(temporary), "processes still run"
    assert _children() <= before[0]
    assert _listening() <= before[1]
    assert not still_shared(shared() - before[2])
    temporary.rmdir()  # an error if there is anything in it
