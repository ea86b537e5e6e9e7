"""The directory of one run: its files, its lock, and the decision to resume an earlier run."""

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

#: For messages; no patterns, since users have no setting for where arrays are stored.
MAY_CHANGE = ", ".join(name for name in CHANGEABLE if "*" not in name)

#: Name that no user's folder has, since files that a killed driver left there are removed.
SHARED = ".flambeau-shared"
#: Folder in which a pipeline is fitted before the job begins.
FITTING = ".flambeau-fit"

#: Errors that concern the disk, whether or not they name the file.
_OF_A_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)

Resume = Literal["auto", "always", "never"]


@final
class RunDirectory:
    """Paths in a run directory. `prepare` creates them."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        #: All settings of the job.
        self.job_file = self.path / "job.yaml"
        #: User code that is stored by value; only its owner has access.
        self.code = self.path / "code"
        self.events = self.path / "events.jsonl"
        #: History of the run from `events` up to some line, so that long runs open quickly.
        self.digest = self.path / "events.digest"
        #: While it exists, it requests the Python stacks of all processes from the driver.
        self.stacks_request = self.path / ".stacks-request"
        #: Report to open in a browser.
        self.page = self.path / "report.html"
        self.tensorboard = self.path / "tensorboard"
        self.checkpoints = self.path / "checkpoints"
        #: Data in the driver's memory while a job runs, for agents that do not inherit it.
        self.shared = self.path / SHARED
        self.report = self.path / "report.json"
        self.best = self.path / "best.json"
        self.latest = self.path / "latest.json"

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    def prepare(self, settings: Mapping[str, Any], resume: Resume | bool) -> bool:
        """Create the directory and save the settings; return True if an earlier run is resumed.

        `settings` are plain values. A run that is resumed must have the same settings as before,
        except those in `CHANGEABLE`; if they differ, the directory is not changed. Files of a run
        that has not trained yet are replaced.
        """
        text = _as_yaml(settings)
        with explained(self.path):
            goes_on = self._goes_on(yaml.safe_load(text), _as_mode(resume))
            self._create(text)
            if not goes_on:
                self._clear()
        return goes_on

    def trained_with(self) -> Mapping[str, Any] | None:
        """Return the settings of the run in the directory; None if no run has trained there."""
        return self._saved() if self.job_file.exists() and self.has_trained() else None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock this directory against all other processes; create it if necessary."""
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
        """Remove temporary files of processes that were killed; call it while holding the lock."""
        for path in self.path.glob(f".*{TEMPORARY}"):
            path.unlink(missing_ok=True)

    @property
    def in_use(self) -> bool:
        """Whether a job runs in this directory, as far as this machine can determine."""
        try:
            holder = (self.path / ".lock").read_text()
        except FileNotFoundError:
            return False
        process, _, host = holder.partition(" on ")
        # A killed process leaves the file; a process on another machine cannot be checked.
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
            return False  # nothing is lost by starting again
        self._require_same(settings)
        return True

    def has_trained(self) -> bool:
        """Return whether there is a checkpoint besides the initial one, which servers need."""
        saved = self.checkpoints.glob(f"step-*/{MANIFEST}")
        return any(path.parent.name.rstrip("0") != "step-" for path in saved)

    def _clear(self) -> None:
        shutil.rmtree(self.checkpoints)
        self.checkpoints.mkdir()
        if self.tensorboard.exists():
            shutil.rmtree(self.tensorboard)
        for file in (self.events, self.digest, self.report, self.page, self.best, self.latest):
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
                "Choose another run_dir for a new run; init_from= starts it from these weights"
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
            # Written last, so that only a complete directory has settings.
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
    """Return whether this entry is one that Flambeau creates before job.yaml."""
    if entry.name in ("code", "tensorboard", "checkpoints") and entry.is_dir():
        return (entry / "index.json").exists() or not any(entry.iterdir())
    return entry.name in (".lock", SHARED, FITTING) or (
        entry.name[0] == "." and entry.suffix == TEMPORARY
    )


@contextmanager
def explained(path: Path, *, own_files: bool = False) -> Iterator[None]:
    """Turn operating system errors into `RunDirectoryError`, with the cause and what to change.

    With `own_files`, only errors about files in `path` are explained; others, such as a cluster's,
    are raised unchanged.
    """
    try:
        yield
    except OSError as error:
        if own_files and not _is_about(error, path):
            raise
        reason = file_reason(error.errno, elsewhere="choose another run_dir") or str(error)
        raise RunDirectoryError(f"cannot use {path} as a run directory: {reason}") from error


def _is_about(error: OSError, path: Path) -> bool:
    """Return whether an error is about a file in a directory; disk errors may name no file."""
    if not isinstance(error.filename, str | bytes | Path):
        return error.errno in _OF_A_DISK
    name = os.path.realpath(os.fsdecode(error.filename))
    return Path(name).is_relative_to(os.path.realpath(path))


def _acquire(path: Path) -> int:
    """Return a descriptor that holds the lock on `path` until it is closed or the process ends."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _flock(descriptor, path)
            # The previous holder may have removed the file after we opened it. A third process
            # would then lock a new file of the same name, and both would hold a lock.
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
        return True  # it belongs to another user
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
