"""The directory of one run: what is where, who may use it, and whether it goes on from before."""

import errno
import fcntl
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, final

import yaml

from flambeau.checkpoint.changes import CHANGEABLE, differences
from flambeau.checkpoint.durable import TEMPORARY, write_atomically
from flambeau.checkpoint.manifest import MANIFEST
from flambeau.checkpoint.os_errors import file_reason
from flambeau.errors import RunDirectoryError

#: What to tell people; where arrays are stored is nobody's setting.
MAY_CHANGE = ", ".join(name for name in CHANGEABLE if "*" not in name)

#: A name that no folder of a user's has: what a killed driver left there is removed.
SHARED = ".flambeau-shared"
#: Where a pipeline is fitted before the job begins.
FITTING = ".flambeau-fit"

#: What only the disk can refuse, whether or not the error names the file.
_OF_A_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)

Resume = Literal["auto", "always", "never"]


@final
class RunDirectory:
    """The places in a run directory. Nothing is created before `prepare`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        #: What was asked, complete.
        self.job_file = self.path / "job.yaml"
        #: The user's code that went by value; only its owner may look inside.
        self.code = self.path / "code"
        self.events = self.path / "events.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.checkpoints = self.path / "checkpoints"
        #: Data of the driver's memory while a job runs, for agents that inherit nothing of it.
        self.shared = self.path / SHARED
        self.report = self.path / "report.json"
        self.best = self.path / "best.json"
        self.latest = self.path / "latest.json"

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    def prepare(self, settings: Mapping[str, Any], resume: Resume | bool) -> bool:
        """Create the directory and save the settings; True if an earlier run goes on.

        `settings` are plain values. A run that goes on must have the settings it had before,
        except those in `CHANGEABLE`; the directory is not touched if they differ. What a run left
        that had trained nothing is replaced.
        """
        text = _as_yaml(settings)
        with explained(self.path):
            goes_on = self._goes_on(yaml.safe_load(text), _as_mode(resume))
            self._create(text)
            if not goes_on:
                self._clear()
        return goes_on

    def trained_with(self) -> Mapping[str, Any] | None:
        """The settings of the run that is here; None if there is none that has trained."""
        return self._saved() if self.job_file.exists() and self.has_trained() else None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other process out of this directory (which is created if need be)."""
        path = self.path / ".lock"
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = _acquire(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def remove_leftovers(self) -> None:
        """Remove temporary files of processes that were killed; call it under the lock."""
        for path in self.path.glob(f".*{TEMPORARY}"):
            path.unlink(missing_ok=True)

    @property
    def in_use(self) -> bool:
        """Whether a job runs in this directory, as far as can be seen from this machine."""
        try:
            holder = (self.path / ".lock").read_text()
        except FileNotFoundError:
            return False
        process, _, host = holder.partition(" on ")
        # A killed process leaves the file; one on another machine cannot be looked for.
        return host != socket.gethostname() or _is_alive(int(process))

    def _goes_on(self, settings: Mapping[str, Any], resume: Resume) -> bool:
        if not self.job_file.exists():
            self._require_unused()
            if resume == "always":
                raise RunDirectoryError(
                    f"{self.path} holds no run to resume; check run_dir, or use resume='auto'"
                )
            return False
        if resume == "never":
            raise RunDirectoryError(
                f"{self.path} holds run {self.path.name!r}; choose another run_dir or resume it"
            )
        if not self.has_trained():
            return False  # nothing is lost by starting otherwise
        self._require_same(settings)
        return True

    def has_trained(self) -> bool:
        """Return whether there is a checkpoint besides that of the start, which servers need."""
        saved = self.checkpoints.glob(f"step-*/{MANIFEST}")
        return any(path.parent.name.rstrip("0") != "step-" for path in saved)

    def _clear(self) -> None:
        shutil.rmtree(self.checkpoints)
        self.checkpoints.mkdir()
        if self.tensorboard.exists():
            shutil.rmtree(self.tensorboard)
        for file in (self.events, self.report, self.best, self.latest):
            file.unlink(missing_ok=True)

    def _require_unused(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise RunDirectoryError(f"{self.path} is a file; choose another run_dir")
        foreign = [entry.name for entry in self._entries() if not _is_ours(entry)]
        if foreign:
            raise RunDirectoryError(
                f"{self.path} is not a run directory: it holds {foreign[0]!r} but no job.yaml; "
                "choose an empty or new run_dir"
            )

    def _entries(self) -> list[Path]:
        return sorted(self.path.iterdir()) if self.path.exists() else []

    def _require_same(self, settings: Mapping[str, Any]) -> None:
        changed = differences(self._saved(), settings)
        if changed:
            lines = "\n  ".join(changed)
            raise RunDirectoryError(
                f"{self.path} holds a run with other settings:\n  {lines}\n"
                f"Only these may change on resume: {MAY_CHANGE}.\n"
                "Choose another run_dir for a new run; init_from= starts it from this one's weights"
            )

    def _saved(self) -> Mapping[str, Any]:
        try:
            saved = yaml.safe_load(self.job_file.read_bytes())
        except yaml.YAMLError as error:
            raise RunDirectoryError(f"{self.job_file} cannot be read: {error}") from error
        if not isinstance(saved, Mapping):
            raise RunDirectoryError(f"{self.job_file} holds no settings; choose another run_dir")
        return saved

    def _create(self, text: str) -> None:
        created: list[Path] = []
        try:
            for directory in (self.path, self.code, self.checkpoints):
                if not directory.is_dir():
                    directory.mkdir(parents=True)
                    created.append(directory)
            self.code.chmod(0o700)
            # Written last: settings are saved only in a directory that is complete.
            write_atomically(self.job_file, text.encode())
        except BaseException:
            for directory in reversed(created):
                directory.rmdir()
            raise


def _as_mode(resume: Resume | bool) -> Resume:
    if isinstance(resume, bool):
        return "always" if resume else "never"
    return resume


def _as_yaml(settings: Mapping[str, Any]) -> str:
    try:
        return yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        raise RunDirectoryError(f"the settings cannot be saved as plain values: {error}") from error


def _is_ours(entry: Path) -> bool:
    """Whether a process of ours, perhaps one that was killed, leaves this before job.yaml."""
    if entry.name in ("code", "tensorboard", "checkpoints") and entry.is_dir():
        return (entry / "index.json").exists() or not any(entry.iterdir())
    return entry.name in (".lock", SHARED, FITTING) or (
        entry.name[0] == "." and entry.suffix == TEMPORARY
    )


@contextmanager
def explained(path: Path, *, own_files: bool = False) -> Iterator[None]:
    """Explain errors of the operating system as what they mean for a run directory.

    `own_files`: only those of its files; others, such as a cluster's, are raised as they are.
    """
    try:
        yield
    except OSError as error:
        if own_files and not _is_about(error, path):
            raise
        reason = file_reason(error.errno, elsewhere="choose another run_dir") or str(error)
        raise RunDirectoryError(f"cannot use {path} as a run directory: {reason}") from error


def _is_about(error: OSError, path: Path) -> bool:
    """Return whether an error is about a file in a directory; one of a disk may name no file."""
    if not isinstance(error.filename, str | bytes | Path):
        return error.errno in _OF_A_DISK
    name = os.path.realpath(os.fsdecode(error.filename))
    return Path(name).is_relative_to(os.path.realpath(path))


def _acquire(path: Path) -> int:
    """A descriptor that holds the lock on `path`, until it is closed or the process ends."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _flock(descriptor, path)
            # The holder before us may have removed the file after we opened it: then a third
            # process would lock a new file of the same name, and not meet us.
            if _is_at(path, descriptor):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()} on {socket.gethostname()}".encode())
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _flock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 1000).decode(errors="replace") or "that has just started"
        raise RunDirectoryError(
            f"{path.parent} is in use by process {holder}; wait for it, or choose another run_dir"
        ) from None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
