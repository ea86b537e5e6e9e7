"""Where processes run: the settings of each cluster."""

import importlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BeforeValidator,
    Field,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from flambeau.config.settings import Settings


class ClusterSettings(Settings):
    """The base of all clusters: how many workers, and what generic code may ask of where they run.

    A cluster of another package is a subclass; `flambeau.clusters.registry` says which class places
    its agents. Saved settings name it by `kind`.
    """

    #: The name in saved settings; `module:class` if the class gives none.
    kind: ClassVar[str]
    #: Whether it brings rows of its engine's own data frames to the workers.
    brings_frames: ClassVar[bool] = False

    workers: int = Field(default=1, ge=1)

    def __init_subclass__(cls, **values: Any) -> None:
        super().__init_subclass__(**values)
        if "kind" not in cls.__dict__:
            cls.kind = f"{cls.__module__}:{cls.__qualname__}"

    @property
    def worker_threads(self) -> int | None:
        """How many threads a worker has, if that is set."""
        return None

    def resolved(self) -> Self:
        """Return these settings with all that only the surroundings know, such as `workers`.

        Every job asks for it first, before it checks settings that depend on it or writes files.
        """
        return self

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
    """Workers that another system starts, perhaps on other machines.

    They inherit nothing of this process. Agents write what they take in to `spool_dir` (their
    temporary folder). `host` is where they reach this process. When they have not joined after
    `start_timeout` seconds, the job is an error. Agents that do not see the run directory get its
    files and send their checkpoints in messages, up to `carry_mb` each; more goes through a folder
    of the `depot`, a URL that all machines reach. With `shared_files=False` they do not even look.
    """

    spool_dir: str | None = None
    host: str | None = None
    start_timeout: float = Field(default=120.0, gt=0)
    carry_mb: int = Field(default=512, ge=0)
    depot: str | None = Field(default=None, pattern="^.+://")
    shared_files: bool = True


class Spark(RemoteCluster):
    """Workers on the executors of a Spark session, one in each task of a barrier stage.

    `session` is the active one unless given. `cores_per_worker` is the number of threads of a
    worker, by default `spark.task.cpus`; `resource_profile` is one of Spark's own. Data frames are
    written once to a file without a name in `spool_dir` of each executor (its temporary folder).
    `host` is where executors reach this process, if that is not what Spark says. When no task has
    begun after `start_timeout` seconds, the job is an error. Executors that do not see the run
    directory send their checkpoints here, up to `carry_mb` each; larger ones go through a folder of
    the `depot`, a URL that all machines reach. With `shared_files=False` they do not even look.
    """

    kind = "spark"
    brings_frames = True

    session: Any = Field(default=None, exclude=True, repr=False)
    cores_per_worker: int | None = Field(default=None, ge=1)
    resource_profile: Any = Field(default=None, exclude=True, repr=False)

    def __init__(self, workers: int = 1, **values: Any) -> None:
        super().__init__(workers=workers, **values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @property
    def worker_threads(self) -> int | None:
        return self.cores_per_worker


_KINDS: dict[str, type[ClusterSettings]] = {kind.kind: kind for kind in (Local, Spark)}


def _saved(value: Any) -> Any:
    """Return the settings that a mapping (of a saved job) holds, or that are given."""
    if isinstance(value, ClusterSettings):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("give a cluster, such as fb.Local(workers) or fb.Spark(workers)")
    values = dict(value)
    name = values.pop("kind", None)
    if name is None:  # saved before there were names
        name = Local.kind if values.keys() <= Local.model_fields.keys() else Spark.kind
    return _class_of(str(name)).model_validate(values)


def _class_of(kind: str) -> type[ClusterSettings]:
    if kind in _KINDS:
        return _KINDS[kind]
    module, _, name = kind.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"there is no cluster of kind {kind!r} ({error}); known: {', '.join(_KINDS)}, and "
            "'module:class' of a package that is installed here"
        ) from error
    if not (isinstance(found, type) and issubclass(found, ClusterSettings)):
        raise ValueError(f"{kind!r} is not a cluster: its class must be a ClusterSettings")
    return found


#: The cluster of a job: settings of any subclass, or what was saved of them.
Cluster = Annotated[SerializeAsAny[ClusterSettings], BeforeValidator(_saved)]
