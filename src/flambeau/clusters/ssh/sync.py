"""Copies of the project and its virtual environment on all hosts that do not share them."""

import secrets
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from flambeau.clusters.ssh.connection import SshProgram, on_all
from flambeau.clusters.ssh.copying import Copied, Copier, CopyError, Transfers, rsync_here
from flambeau.clusters.ssh.delivery import Delivered, Delivery
from flambeau.clusters.ssh.environment import Environment, environment_here, misfit
from flambeau.clusters.ssh.probe import Description, Question, describe_here, probe
from flambeau.clusters.ssh.problems import Problem
from flambeau.clusters.ssh.project_files import MARKER, ProjectFiles, all_files, find_files
from flambeau.clusters.ssh.readiness import pip_command, unfit
from flambeau.errors import ConfigError, DataError

#: Called with a host, what is copied there ("project", "environment"), the number of bytes so far,
#: and the total number.
Progress = Callable[[str, str, int, int], None]


@final
@dataclass(frozen=True)
class Plan:
    """The folders of this machine to copy, and their paths on hosts."""

    project: ProjectFiles
    target: str
    environment: Environment | None = None
    environment_files: ProjectFiles | None = None
    environment_target: str = ""


@final
@dataclass
class Synced:
    """The result for a host.

    `shared` is true if it sees the folder of this machine, so that nothing was copied; otherwise
    `project` and `environment` are what was copied, or would be. `python` is its interpreter for
    jobs. `note` says why the environment was not copied, and `install` is the command that installs
    what is then missing.
    """

    host: str
    description: Description | None = None
    shared: bool = False
    shared_environment: bool = False
    project: Delivered | None = None
    environment: Delivered | None = None
    by: str = ""
    python: str = ""
    note: str = ""
    install: str = ""
    problem: Problem | None = None


def make_plan(
    folder: Path, *, to: str | None = None, exclude: Sequence[str] = (), environment: bool = True
) -> Plan:
    """Return the plan to copy a folder, by default to the same path on hosts.

    The virtual environment of this process keeps its place in the project, or else its own path.
    """
    source = folder.expanduser().resolve()
    if not source.is_dir():
        raise DataError(f"{source} is not a folder; give the folder of your project")
    target = str(source) if to is None else to.rstrip("/") or "/"
    if not target.strip("/.") or target.startswith(("~", "-")):
        raise ConfigError(
            f"--to {to!r}: give an absolute path such as /home/me/project, or one that begins in "
            "the home directory of hosts, such as project"
        )
    project = find_files(source, exclude)
    found = environment_here() if environment else None
    if found is None:
        return Plan(project, target)
    place = found.folder.resolve()
    inside = place.is_relative_to(source) and place != source
    own = f"{target}/{place.relative_to(source).as_posix()}" if inside else str(place)
    return Plan(project, target, found, all_files(place), own)


def sync_hosts(
    ssh: SshProgram,
    hosts: Sequence[str],
    plan: Plan,
    *,
    progress: Progress,
    python: str | None = None,
    dry_run: bool = False,
    seconds: float = 30.0,
) -> list[Synced]:
    """Copy to all hosts at once; return the result for each.

    `python` is the program that describes a host, for which it has `seconds`.
    """
    base = "" if plan.environment is None else plan.environment.base
    with _markers(plan) as markers:
        work = _Work(ssh, plan, Question(plan.target, markers, base), progress, seconds)
        synced = work.describe(hosts, python)
        (work.preview if dry_run else work.copy)(synced)
    return synced


@contextmanager
def _markers(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Create a marker file in each folder; yield its paths on hosts that share the folder."""
    name = f"{MARKER}{secrets.token_hex(8)}"
    places = [(plan.project.folder, plan.target)]
    if plan.environment_files is not None:
        places.append((plan.environment_files.folder, plan.environment_target))
    with ExitStack() as stack:
        for folder, _ in places:
            stack.enter_context(_marked(folder / name))
        yield tuple(f"{target}/{name}" for _, target in places)


@contextmanager
def _marked(path: Path) -> Iterator[None]:
    try:
        path.touch()
    except OSError as error:
        raise DataError(
            f"{path.parent} cannot be written ({error.strerror}), which is needed to find out "
            "whether hosts share it; copy it to a folder of yours first"
        ) from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@final
class _Work:
    """The steps of a sync; each runs at once on all hosts that have had no problem so far."""

    def __init__(
        self,
        ssh: SshProgram,
        plan: Plan,
        question: Question,
        progress: Progress,
        seconds: float,
    ) -> None:
        self._ssh, self._plan, self._question = ssh, plan, question
        self._progress, self._seconds = progress, seconds
        self._here = describe_here(question)
        self._rsync = rsync_here()
        self._transfers = Transfers()

    def describe(self, hosts: Sequence[str], python: str | None) -> list[Synced]:
        """Return the descriptions of all hosts, and what they share with this machine."""

        def ask(host: str) -> Synced:
            found = probe(self._ssh, host, self._question, python=python, seconds=self._seconds)
            synced = Synced(host, found.description, problem=found.problem)
            if found.description is not None:
                synced.shared, *others = found.description.marked
                synced.shared_environment = any(others)
                synced.by = "rsync" if self._rsync and found.description.rsync else "tar"
                self._judge(synced, found.description)
            return synced

        return list(on_all(hosts, ask).values())

    def preview(self, synced: Sequence[Synced]) -> None:
        """Determine what would be copied."""
        for each in self._lacking_project(synced):
            each.project = self._previewed(each)
        for each in self._lacking_environment(synced):
            assert self._plan.environment_files is not None
            each.environment = _all_of(each.host, self._plan.environment_files)
            each.install = ""

    def _previewed(self, synced: Synced) -> Delivered:
        plan, found = self._plan, synced.description
        assert found is not None
        if not (found.there and synced.by == "rsync"):
            return _all_of(synced.host, plan.project)
        copier = Copier(self._ssh, self._transfers, plan.project, plan.target)
        try:
            copied = copier.rsync(synced.host, lambda done, total: None, dry_run=True)
        except CopyError as error:
            synced.problem = error.problem
            return Delivered(synced.host, problem=error.problem)
        return Delivered(synced.host, copied)

    def copy(self, synced: Sequence[Synced]) -> None:
        """Copy the project, then the environment, and check what jobs will find there."""
        plan = self._plan
        delivery = Delivery(
            self._ssh,
            self._transfers,
            frozenset(each.host for each in synced if each.by == "rsync"),
        )
        lacking = {each.host: each for each in self._lacking_project(synced)}
        advance = self._advance("project")
        done = delivery.deliver(list(lacking), plan.project, plan.target, advance)
        for host, delivered in done.items():
            lacking[host].project = delivered
            lacking[host].problem = delivered.problem
        lacking = {each.host: each for each in self._lacking_environment(synced)}
        if plan.environment_files is not None:
            files, target = plan.environment_files, plan.environment_target
            advance = self._advance("environment")
            done = delivery.deliver(list(lacking), files, target, advance, mirror=True)
            for host, delivered in done.items():
                lacking[host].environment = delivered
                lacking[host].problem = delivered.problem
        on_all(lacking, lambda host: self._verify(lacking[host]))

    def _verify(self, synced: Synced) -> None:
        """Probe a host with the Python of its copied environment."""
        if synced.problem is not None:
            return
        python = f"{self._plan.environment_target}/bin/python"
        found = probe(self._ssh, synced.host, self._question, python=python, seconds=self._seconds)
        synced.problem = found.problem
        if found.description is not None:
            self._judge(synced, found.description)

    def _judge(self, synced: Synced, found: Description) -> None:
        """Store which Python a host has for jobs, and the command that installs what it lacks."""
        synced.python = found.executable
        synced.install = ""
        if unfit(found, synced.host, self._ssh.shown) is not None:
            command = shlex.quote(pip_command(found.executable))
            synced.install = f"{self._ssh.shown} {shlex.quote(synced.host)} {command}"

    def _lacking_project(self, synced: Sequence[Synced]) -> list[Synced]:
        return [each for each in synced if each.problem is None and not each.shared]

    def _lacking_environment(self, synced: Sequence[Synced]) -> list[Synced]:
        """Return the hosts that can use a copy of the environment; set `note` for the others."""
        environment = self._plan.environment
        if environment is None:
            return []
        able = []
        for each in synced:
            if each.problem is not None or each.shared_environment:
                continue
            assert each.description is not None
            reason = misfit(environment, each.description, self._here)
            if reason is None:
                able.append(each)
            else:
                each.note = f"the environment is not copied: {reason}"
        return able

    def _advance(self, what: str) -> Callable[[str, int, int], None]:
        return lambda host, done, total: self._progress(host, what, done, total)


def _all_of(host: str, files: ProjectFiles) -> Delivered:
    return Delivered(host, Copied(files.files, files.bytes, 0.0))
