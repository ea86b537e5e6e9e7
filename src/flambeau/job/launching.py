"""From a team and a cluster to its outcome: the one place where a controller is put to work."""

from typing import Any

from flambeau.clusters.base import Launch
from flambeau.clusters.local import LOOPBACK, LocalCluster
from flambeau.config import Local, Recovery
from flambeau.job.controller import Controller
from flambeau.job.outcome import Outcome
from flambeau.job.roles import modules_of
from flambeau.job.team import Team
from flambeau.observe import Observer

CHILD_MODULE = "flambeau.job.child"


def run_team(
    team: Team,
    cluster: Local,
    observer: Observer,
    recovery: Recovery,
    payload: dict[str, Any],
    fds: tuple[int, ...] = (),
    *,
    graceful: bool,
) -> Outcome:
    """Run all roles of a team to their end. `graceful`: they can save and stop when asked to."""
    controller = Controller(team, LocalCluster(), observer, recovery, LOOPBACK, graceful=graceful)
    launch = Launch(
        coordinator=controller.address,
        secret=controller.secret,
        module=CHILD_MODULE,
        payload=payload,
        fds=fds,
        preload=modules_of(team.roles),
        threads_per_worker=cluster.threads_per_worker,
    )
    return controller.run(launch)
