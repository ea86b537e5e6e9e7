"""Files of a run that travel."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flambeau.clusters.file_transfer import file_parts
from flambeau.clusters.file_transfer.file_parts import parts_of, sees, write_part
from flambeau.clusters.file_transfer.mirror import Mirror
from flambeau.coordination.file_messages import FilePart, FilesSent


def test_a_file_travels_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_parts, "PART_BYTES", 4)
    (tmp_path / "here" / "deep").mkdir(parents=True)
    (tmp_path / "here" / "deep" / "file").write_bytes(b"0123456789")
    (tmp_path / "here" / "empty").touch()
    for name in ("deep/file", "empty"):
        parts = list(parts_of(tmp_path / "here", tmp_path / "here" / name))
        for part, data in parts:
            write_part(tmp_path / "there", part, data)
    assert (tmp_path / "there" / "deep" / "file").read_bytes() == b"0123456789"
    assert (tmp_path / "there" / "empty").read_bytes() == b""


@pytest.mark.parametrize("path", ["../stolen", "/etc/stolen", "a/../../stolen"])
def test_nothing_is_written_outside(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="is not below"):
        write_part(tmp_path / "root", FilePart(path, 0), b"x")


def test_a_run_directory_is_known_by_its_token(tmp_path: Path) -> None:
    assert not sees(str(tmp_path), "token")
    (tmp_path / ".token").write_text("other")
    assert not sees(str(tmp_path), "token")
    (tmp_path / ".token").write_text("token")
    assert sees(str(tmp_path), "token")


def checkpoints(root: Path, *steps: int) -> None:
    for step in steps:
        directory = root / "checkpoints" / f"step-{step:08d}"
        directory.mkdir(parents=True)
        for name in ("manifest.json", "zebra"):
            (directory / name).write_text(name)


def test_what_commits_a_checkpoint_is_sent_last(tmp_path: Path) -> None:
    own = Mirror(str(tmp_path), limit=100)
    checkpoints(own.root, 1)
    sent: list[Any] = []
    own.send(3, "checkpoints/step-00000001", lambda message, buffers=(): sent.append(message))
    assert [getattr(each, "path", "").rpartition("/")[2] for each in sent] == [
        "zebra",
        "manifest.json",
        "",
    ]
    assert sent[-1] == FilesSent(3, "checkpoints/step-00000001")


def test_what_is_too_large_stays(tmp_path: Path) -> None:
    own = Mirror(str(tmp_path), limit=5)
    checkpoints(own.root, 1)
    sent: list[Any] = []
    own.send(0, "checkpoints/step-00000001", lambda message, buffers=(): sent.append(message))
    assert sent == [FilesSent(0, "checkpoints/step-00000001", too_large=18)]


KILLED = """
import os, signal, sys
from flambeau.clusters.file_transfer.mirror import Mirror
(Mirror(sys.argv[1], 5).root / "model.py").write_text("secret")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_agent_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    alive = Mirror(str(tmp_path), limit=5)
    subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    (tmp_path / "flambeau-mirrors-of-others").mkdir()
    assert len(list(tmp_path.rglob("model.py"))) == 1
    following = Mirror(str(tmp_path), limit=5)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {alive.root.name, following.root.name, "flambeau-mirrors-of-others"}
    for each in (alive, following):
        each.remove()


def test_a_file_system_without_locks_has_mirrors_that_nobody_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    mirrors = [Mirror(str(tmp_path), limit=5) for _ in range(2)]
    assert all(each.root.exists() for each in mirrors)
    for each in mirrors:
        each.remove()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of another user")
def test_directories_of_other_users_stay(tmp_path: Path) -> None:
    first = Mirror(str(tmp_path), limit=5)
    first.remove()
    first.root.mkdir()
    os.chown(first.root, 65534, 65534)
    Mirror(str(tmp_path), limit=5).remove()
    assert first.root.exists()


def test_old_checkpoints_go_and_new_ones_stay(tmp_path: Path) -> None:
    own = Mirror(str(tmp_path), limit=5)
    checkpoints(own.root, 1, 2, 3)
    own.forget(["step-00000002"])
    left = sorted(path.name for path in (own.root / "checkpoints").iterdir())
    assert left == ["step-00000002", "step-00000003"]
    own.remove()
    assert not list(tmp_path.iterdir())
