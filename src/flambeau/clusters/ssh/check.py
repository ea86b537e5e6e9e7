"""The check of all hosts: what they offer, compared with this machine."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from flambeau.clusters.ssh.connection import SshProgram, on_all
from flambeau.clusters.ssh.probe import Description, Question, probe
from flambeau.clusters.ssh.problems import Problem
from flambeau.clusters.ssh.readiness import faults


@final
@dataclass(frozen=True)
class Checked:
    """The result for a host: its description, if it could be reached, and the problems to fix."""

    host: str
    description: Description | None
    latency: float | None
    problems: tuple[Problem, ...]


def check_hosts(
    ssh: SshProgram, hosts: Sequence[str], *, python: str | None = None, seconds: float = 30.0
) -> list[Checked]:
    """Check all hosts at once; each has `seconds` to reply."""
    question = Question(folder=os.getcwd())

    def check(host: str) -> Checked:
        found = probe(ssh, host, question, python=python, seconds=seconds)
        if found.description is None:
            assert found.problem is not None
            return Checked(host, None, None, (found.problem,))
        problems = faults(found.description, host, ssh.shown, python)
        return Checked(host, found.description, found.latency, tuple(problems))

    return list(on_all(hosts, check).values())
