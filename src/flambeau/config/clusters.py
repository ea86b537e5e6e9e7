"""Settings of each cluster: where processes run."""

import importlib
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from flambeau.config.host_file import read_hosts
from flambeau.config.settings import Settings
from flambeau.errors import ConfigError


class ClusterSettings(Settings):
    """Base class of cluster settings: the number of workers, and the interface for generic code.

    On machines that workers do not share with other jobs, `affinity` binds each worker to its own
    cores, with `threads_per_core` hardware threads per core; "none" changes neither cores nor
    threads.

    Other packages define clusters as subclasses; `flambeau.clusters.registry` maps settings to the
    class that places the agents. Saved settings identify the cluster by `kind`.
    """

    #: Name in saved settings; by default `module:class`.
    kind: ClassVar[str]
    #: Engine whose data frames this cluster can deliver to workers: "spark" or "ray".
    engine: ClassVar[str | None] = None

    workers: int = Field(default=1, ge=1)
    affinity: Literal["auto", "none"] = "auto"
    threads_per_core: Literal[1, 2, 4] = 1

    def __init_subclass__(cls, **values: Any) -> None:
        super().__init_subclass__(**values)
        if "kind" not in cls.__dict__:
            cls.kind = f"{cls.__module__}:{cls.__qualname__}"

    @property
    def worker_threads(self) -> int | None:
        """Number of threads per worker, or None if it is not set."""
        return None

    def brings(self, engine: str) -> bool:
        """Return whether this cluster can deliver the engine's data frames to workers."""
        return self.engine == engine

    def resolved(self) -> Self:
        """Return these settings, completed with values from the environment, such as `workers`.

        Every job calls this first, before it checks settings that depend on it or writes files.
        """
        return self

    @property
    def workers_known(self) -> bool:
        """Whether `workers` is final; with a launcher, it is unknown until its processes meet."""
        return True

    @model_serializer(mode="wrap")
    def _named(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"kind": self.kind, **dump(self)}


class Local(ClusterSettings):
    """Worker processes on this machine.

    Each worker gets its own set of cores, and by default as many threads as it has cores.
    """

    kind = "local"

    threads_per_worker: int | None = Field(default=None, ge=1)

    def __init__(self, workers: int = 1, **values: Any) -> None:
        super().__init__(workers=workers, **values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @property
    def worker_threads(self) -> int | None:
        return self.threads_per_worker


class RemoteCluster(ClusterSettings):
    """Workers that another system starts, possibly on other machines.

    They inherit nothing from this process. Agents write the data that they receive to `spool_dir`
    (by default their temporary folder). `host` is the address at which they reach this process. If
    they have not joined after `start_timeout` seconds, the job fails. Agents that cannot access the
    run directory receive its files and send their checkpoints in messages, up to `carry_mb` MB
    each; larger ones go through a folder of the `depot`, a URL that all machines can reach. With
    `shared_files=False`, agents do not check for the run directory.
    """

    spool_dir: str | None = None
    host: str | None = None
    start_timeout: float = Field(default=120.0, gt=0)
    carry_mb: int = Field(default=512, ge=0)
    depot: str | None = Field(default=None, pattern="^.+://")
    shared_files: bool = True


class Spark(RemoteCluster):
    """Workers on the executors of a Spark session, one in each task of a barrier stage.

    `session` is by default the active one. `cores_per_worker` is the number of threads per worker,
    by default `spark.task.cpus`; `resource_profile` is a Spark ResourceProfile. Data frames are
    written once, to an unnamed file in `spool_dir` of each executor (by default its temporary
    folder). `host` is the address at which executors reach this process, by default the one that
    Spark uses. If no task has started after `start_timeout` seconds, the job fails. Executors that
    cannot access the run directory send their checkpoints to this process, up to `carry_mb` MB
    each; larger ones go through a folder of the `depot`, a URL that all machines can reach. With
    `shared_files=False`, executors do not check for the run directory.
    """

    kind = "spark"
    engine = "spark"

    session: Any = Field(default=None, exclude=True, repr=False)
    cores_per_worker: int | None = Field(default=None, ge=1)
    resource_profile: Any = Field(default=None, exclude=True, repr=False)

    def __init__(self, workers: int = 1, **values: Any) -> None:
        super().__init__(workers=workers, **values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @property
    def worker_threads(self) -> int | None:
        return self.cores_per_worker


class Ray(RemoteCluster):
    """Workers on the nodes of a Ray cluster, one in each actor of a placement group.

    `address` is that of a running cluster; by default, the cluster of this process or machine is
    used, or a new one is started on this machine. Each worker reserves `cores_per_worker` and
    `gpus_per_worker` of Ray's resources; `placement` fills one node after the other ("pack") or
    spreads workers over the nodes. `runtime_env` is Ray's, for packages that nodes lack. If the
    cluster has no room for the workers after `resources_timeout` seconds, the job fails. From a
    client (`ray://`), a process on the head node drives the job, and keeps the run in `driver_dir`
    until its files are fetched.
    """

    kind = "ray"
    engine = "ray"

    address: str | None = None
    cores_per_worker: float = Field(default=1, gt=0)
    gpus_per_worker: float = Field(default=0, ge=0)
    placement: Literal["pack", "spread"] = "pack"
    runtime_env: dict[str, Any] | None = None
    resources_timeout: float = Field(default=10.0, gt=0)
    driver_dir: str | None = None

    def __init__(self, workers: int = 1, **values: Any) -> None:
        super().__init__(workers=workers, **values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @property
    def worker_threads(self) -> int | None:
        return max(1, int(self.cores_per_worker))

    @property
    def resources(self) -> dict[str, float]:
        """Resources that Ray reserves for each worker."""
        gpus = {"GPU": self.gpus_per_worker} if self.gpus_per_worker else {}
        return {"CPU": self.cores_per_worker, **gpus}


#: Launchers whose environment variables give ranks; see `flambeau.clusters.attached.launchers`.
LauncherName = Literal[
    "torchrun",
    "horovod",
    "openmpi",
    "mvapich",
    "pals",
    "jsrun",
    "flux",
    "aprun",
    "mpich",
    "slurm",
]


class Attached(RemoteCluster):
    """Processes that srun, mpiexec, torchrun, aprun, jsrun or flux has started.

    Each of them runs the same script and takes part in every job; rank 0 also drives the job, and
    all return the same result. Ranks are read from the launcher's environment variables (`detect`
    names the launcher), or given as `rank` and `size`. Each process starts `workers_per_process`
    workers: by default 1 if the launcher started several processes per host, otherwise one per GPU,
    or 1. Processes find each other through a file in `meeting_dir`, a folder that all hosts share
    (by default .flambeau in the current one); `host` is the address of rank 0 for the others.
    """

    kind = "attached"

    detect: LauncherName | None = Field(default=None, exclude=True)
    rank: int | None = Field(default=None, ge=0, exclude=True)
    size: int | None = Field(default=None, ge=1, exclude=True)
    workers_per_process: int | None = Field(default=None, ge=1)
    threads_per_worker: int | None = Field(default=None, ge=1)
    meeting_dir: str | None = None
    #: The processes of the job, once they have met.
    meeting: Any = Field(default=None, exclude=True, repr=False)

    def __init__(self, **values: Any) -> None:
        if "workers" in values:
            raise ConfigError(
                f"Attached(workers={values['workers']!r}): the launcher decides how many processes "
                "there are; give workers_per_process= for several workers in each"
            )
        super().__init__(**values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.rank is None) != (self.size is None):
            raise ValueError("give rank= and size= together, or neither")
        return self

    @property
    def worker_threads(self) -> int | None:
        return self.threads_per_worker

    @property
    def workers_known(self) -> bool:
        return self.meeting is not None


class Ssh(RemoteCluster):
    """Workers on hosts that are reached by ssh, with the user's own config, agent and keys.

    `hosts` is a host file in the format of MPI and DeepSpeed (one host per line, `node1 slots=4`),
    or a list of such lines. Each host has room for `workers_per_host` workers, or as many as it has
    slots; a host without slots has room for one, or for an even share of `workers`. With fewer
    `workers` than slots, the remaining slots replace those of lost hosts. `python` is the
    interpreter on the hosts, by default the one at the same path as on this machine; `environment`
    has variables for the processes there. `ssh` is the program with its options, such as
    "ssh -F my_config". `host` is the address at which hosts reach this machine, by default the one
    from which ssh connects. `tunnel` sends that traffic through ssh, for hosts that cannot connect
    to this machine (None: only where it is needed).
    """

    kind = "ssh"

    hosts: str | tuple[str, ...] = "hosts.txt"
    workers_per_host: int | None = Field(default=None, ge=1)
    threads_per_worker: int | None = Field(default=None, ge=1)
    python: str | None = None
    environment: dict[str, str] = {}
    ssh: str | tuple[str, ...] = "ssh"
    tunnel: bool | None = None

    def __init__(
        self, hosts: str | PathLike[str] | Sequence[str] | None = None, **values: Any
    ) -> None:
        if hosts is not None:
            values["hosts"] = fspath(hosts) if isinstance(hosts, str | PathLike) else tuple(hosts)
        super().__init__(**values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @property
    def worker_threads(self) -> int | None:
        return self.threads_per_worker

    def resolved(self) -> Self:
        """Return these settings with the hosts of the file, their slots and the total `workers`."""
        hosts = read_hosts(self.hosts)
        asked = self.workers if "workers" in self.model_fields_set else None
        each = self.workers_per_host or (asked and -(-asked // len(hosts))) or 1
        slots = [self.workers_per_host or host.slots or each for host in hosts]
        if asked is not None and asked > sum(slots):
            raise ConfigError(
                f"cluster.workers={asked}: the hosts have {sum(slots)} slots; ask for fewer "
                "workers, give slots=n in the host file, or workers_per_host="
            )
        lines = (f"{host.name} slots={n}" for host, n in zip(hosts, slots, strict=True))
        update = {"hosts": tuple(lines), "workers": asked or sum(slots), "workers_per_host": None}
        return self.model_copy(update=update)


class UnknownCluster(ClusterSettings):
    """Generic settings of a cluster whose package is not installed on this machine.

    Workers, and processes that predict with a run, do not need the package that placed the workers.
    """

    model_config = ConfigDict(extra="ignore")

    def brings(self, engine: str) -> bool:
        return True


_KINDS: dict[str, type[ClusterSettings]] = {
    kind.kind: kind for kind in (Local, Spark, Ray, Attached, Ssh)
}


def _saved(value: Any) -> Any:
    """Return cluster settings: `value`, or those in a mapping from a saved job."""
    if isinstance(value, ClusterSettings):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("give a cluster, such as fb.Local(workers) or fb.Spark(workers)")
    values = dict(value)
    name = values.pop("kind", None)
    if name is None:  # saved before settings had a `kind`
        name = Local.kind if values.keys() <= Local.model_fields.keys() else Spark.kind
    return _class_of(str(name)).model_validate(values)


def _class_of(kind: str) -> type[ClusterSettings]:
    if kind in _KINDS:
        return _KINDS[kind]
    module, _, name = kind.partition(":")
    if not name:
        raise ValueError(
            f"there is no cluster of kind {kind!r}; known: {', '.join(_KINDS)}, and 'module:class' "
            "of another package"
        )
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return UnknownCluster  # its run can still be used
    if not (isinstance(found, type) and issubclass(found, ClusterSettings)):
        raise ValueError(f"{kind!r} is not a cluster: its class must be a ClusterSettings")
    return found


#: Cluster of a job: settings of any subclass, or the saved form of them.
Cluster = Annotated[SerializeAsAny[ClusterSettings], BeforeValidator(_saved)]
