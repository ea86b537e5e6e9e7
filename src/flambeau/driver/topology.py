"""The roles of a job, their coordinator, and the checkpoints that they start from."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flambeau.checkpoint import RunDirectory
from flambeau.clusters.attached.launchers import detected
from flambeau.clusters.file_transfer.carrier import Carrier
from flambeau.config import Attached, Cluster, JobSettings, Local, RemoteCluster, Settings
from flambeau.config.plural import number_of
from flambeau.config.strategies import AllReduce, ParameterServer
from flambeau.coordination.file_messages import AgentJoined
from flambeau.coordination.placement import place_roles
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.driver.control.starting_points import StartingPoints
from flambeau.driver.coordinators import PassiveCoordinator, RoundCoordinator, TrainingCoordinator
from flambeau.driver.task_coordinator import TaskCoordinator
from flambeau.errors import ConfigError
from flambeau.kernels.cores import usable_cores

SERVERS_PER_CORE = 8


class _Given(Settings):
    cluster: Cluster


def cluster_of(given: Cluster | None) -> Cluster:
    """Return the settings of the given cluster.

    The default is all processes of the launcher that started this one, if there are others, and
    otherwise one worker on this machine.
    """
    if given is None:
        return Local() if detected() is None else Attached()
    if isinstance(given, int):
        raise ConfigError(f"cluster={given}: give fb.Local({given}) for workers of this machine")
    return _Given(cluster=given).cluster.resolved()


@dataclass(frozen=True)
class Topology:
    """The roles of a job, their coordinator, and the starting points of its generations.

    `labels` are the label columns. A file at `stacks_request` is a request for the Python stacks of
    all processes.
    """

    workers: int
    role: Role = Role.WORKER
    evaluator: bool = False
    servers: int = 0
    coordinator: TrainingCoordinator | None = None
    starts: StartingPoints = field(default_factory=StartingPoints)
    carrier: Carrier | None = None
    labels: tuple[str, ...] = ()
    stacks_request: Path | None = None

    @property
    def roles(self) -> list[Role]:
        """The kinds of roles that the job has."""
        others = {Role.SERVER: self.servers > 0, Role.EVALUATOR: self.evaluator}
        return [self.role, *(role for role, wanted in others.items() if wanted)]

    def place(self, agents: Sequence[AgentJoined], generation: int) -> dict[int, list[RoleSpec]]:
        """Return the roles of a generation, by the agent that starts them."""
        return place_roles(
            agents,
            self.workers,
            generation,
            role=self.role,
            servers=self.servers,
            evaluator=self.evaluator,
        )


def make_topology(
    run: RunDirectory, settings: JobSettings, *, resumes: bool, initial: Path | None = None
) -> Topology:
    """Return the topology for a job's settings; `initial` is the checkpoint to start from."""
    strategy = settings.strategy
    return Topology(
        settings.cluster.workers,
        evaluator=settings.evaluator,
        servers=0 if isinstance(strategy, AllReduce) else strategy.servers,
        coordinator=_coordinator(settings),
        starts=StartingPoints(run, resumes=resumes),
        carrier=make_carrier(run, settings.cluster, settings.checkpoints.keep, initial),
        labels=settings.binding.labels,
        stacks_request=run.stacks_request,
    )


def make_carrier(
    run: RunDirectory, cluster: Cluster, keep: int, initial: Path | None = None
) -> Carrier | None:
    """Return the carrier of a run's files to machines that cannot see them; None if all can."""
    if not isinstance(cluster, RemoteCluster):
        return None
    depot = None
    if cluster.depot is not None:
        from flambeau.clusters.file_transfer.depot import (
            Depot,  # loads torch, like all modules that read data
        )
        from flambeau.data.sources.urls import file_system

        depot = Depot(f"{cluster.depot.rstrip('/')}/flambeau-{uuid.uuid4().hex}")
        file_system(depot.url)  # raises at once if it cannot be opened
    limit = cluster.carry_mb << 20
    return Carrier(run, keep, initial, limit, depot)


def require_room(settings: JobSettings) -> None:
    """Raise `ConfigError` for many more servers than cores, which only slow each other down."""
    if isinstance(settings.strategy, AllReduce):
        return
    servers, cores = settings.strategy.servers, len(usable_cores())
    if isinstance(settings.cluster, RemoteCluster):
        return  # the cores of other machines are not known here
    if servers > SERVERS_PER_CORE * cores:
        raise ConfigError(
            f"strategy.servers={servers}: this machine has {number_of(cores, 'core')}, room for "
            f"at most {SERVERS_PER_CORE * cores} servers; one for each worker is plenty"
        )


def _coordinator(settings: JobSettings) -> TrainingCoordinator:
    strategy = settings.strategy
    if isinstance(strategy, AllReduce) or (
        not isinstance(strategy, ParameterServer) and strategy.consistency == "asynchronous"
    ):
        return PassiveCoordinator(Role.WORKER)
    if not strategy.lockstep:
        return TaskCoordinator(settings)
    return RoundCoordinator(settings, tells_progress=isinstance(strategy, ParameterServer))
