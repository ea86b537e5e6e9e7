"""Delivery of a folder to several hosts at once, and only once to those that share it."""

import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from flambeau.clusters.ssh.connection import SshProgram, ask, on_all
from flambeau.clusters.ssh.copying import Copied, Copier, CopyError, Transfers
from flambeau.clusters.ssh.problems import Problem, ProblemKind
from flambeau.clusters.ssh.project_files import MARKER, ProjectFiles

#: Timeout, in seconds, of a command that lists or changes a folder.
_SECONDS = 60.0

#: Called with a host, the number of bytes sent to it so far, and the total number.
Progress = Callable[[str, int, int], None]


@final
@dataclass(frozen=True)
class Delivered:
    """The result for a host: the folder was sent there, or to `by_way_of`, which shares it."""

    host: str
    copied: Copied | None = None
    by_way_of: str | None = None
    problem: Problem | None = None


@final
@dataclass(frozen=True)
class Delivery:
    """Delivery of folders to hosts; `rsync` are the hosts that have it, if this machine has it."""

    ssh: SshProgram
    transfers: Transfers
    rsync: frozenset[str]

    def deliver(
        self,
        hosts: Sequence[str],
        files: ProjectFiles,
        target: str,
        progress: Progress,
        *,
        mirror: bool = False,
    ) -> dict[str, Delivered]:
        """Copy a folder to all hosts, to the path `target`; see `Copier` for `mirror`."""
        copier = Copier(self.ssh, self.transfers, files, target, mirror)
        token = f"{MARKER}{secrets.token_hex(8)}-"
        markers = {host: f"{token}{number}" for number, host in enumerate(hosts)}
        prepared = self._all(hosts, lambda host: self._prepare(copier, host, markers[host]))
        ready = [host for host in hosts if prepared[host].problem is None]
        first = self._sharing(ready, copier, markers)
        copying = [host for host in ready if first[host] == host]
        try:
            done = self._all(copying, lambda host: self._copy(copier, host, progress))
        finally:
            on_all(copying, lambda host: self._unmark(copier, host, token))
        return {host: _outcome(host, prepared, first, done) for host in hosts}

    def _all(self, hosts: Sequence[str], work: Callable[[str], Delivered]) -> dict[str, Delivered]:
        return on_all(hosts, work, on_interrupt=self.transfers.stop)

    def _prepare(self, copier: Copier, host: str, marker: str) -> Delivered:
        try:
            copier.prepare(host, marker)
        except CopyError as error:
            return Delivered(host, problem=error.problem)
        return Delivered(host)

    def _sharing(
        self, hosts: Sequence[str], copier: Copier, markers: Mapping[str, str]
    ) -> dict[str, str]:
        """Return, for each host, the first one that sees the same folder."""
        look = ["sh", "-c", f"ls -A -- {shlex.quote(copier.target)}"]

        def seen(host: str) -> str:
            answer = ask(self.ssh, host, look, seconds=_SECONDS)
            names = set(answer.output.decode(errors="replace").splitlines())
            # If a host does not reply here, the copy to it fails.
            return next((other for other in hosts if markers[other] in names), host)

        return on_all(hosts, seen, on_interrupt=self.transfers.stop)

    def _copy(self, copier: Copier, host: str, progress: Progress) -> Delivered:
        def advance(done: int, total: int) -> None:
            progress(host, done, total)

        try:
            send = copier.rsync if host in self.rsync else copier.tar
            return Delivered(host, send(host, advance))
        except CopyError as error:
            return Delivered(host, problem=error.problem)
        except OSError as error:
            return Delivered(host, problem=_unreadable(host, error))

    def _unmark(self, copier: Copier, host: str, token: str) -> None:
        # If that fails, an empty file remains, which later copies exclude.
        remove = f"rm -f -- {shlex.quote(copier.target)}/{token}*"
        ask(self.ssh, host, ["sh", "-c", remove], seconds=_SECONDS)


def _outcome(
    host: str,
    prepared: Mapping[str, Delivered],
    first: Mapping[str, str],
    done: Mapping[str, Delivered],
) -> Delivered:
    if prepared[host].problem is not None:
        return prepared[host]
    sent = done[first[host]]
    if first[host] == host:
        return sent
    if sent.problem is not None:
        return Delivered(host, problem=sent.problem)
    return Delivered(host, by_way_of=first[host])


def _unreadable(host: str, error: OSError) -> Problem:
    name = str(error.filename or "a file")
    return Problem(
        host,
        ProblemKind.OTHER,
        f"{name} of this machine could not be copied: {error.strerror or error}",
        f"ls -l {shlex.quote(name)}",
        "it may have changed while it was copied; then run the same command again",
    )
