"""Where processes run: the settings of each cluster."""

from typing import Any

from pydantic import Field

from flambeau.config.settings import Settings


class Local(Settings):
    """Worker processes on this machine.

    Each worker gets its own set of cores, and by default as many threads as it has cores.
    """

    workers: int = Field(default=1, ge=1)
    threads_per_worker: int | None = Field(default=None, ge=1)

    def __init__(self, workers: int = 1, **values: Any) -> None:
        super().__init__(workers=workers, **values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


class Spark(Settings):
    """Workers on the executors of a Spark session, one in each task of a barrier stage.

    `session` is the active one unless given. `cores_per_worker` is the number of threads of a
    worker, by default `spark.task.cpus`; `resource_profile` is one of Spark's own. Data frames are
    written once to a file without a name in `spool_dir` of each executor (its temporary folder).
    `host` is where executors reach this process, if that is not what Spark says. When no task has
    begun after `start_timeout` seconds, the job is an error. Executors that do not see the run
    directory send their checkpoints here, up to `carry_mb` each; larger ones go through a folder of
    the `depot`, a URL that all machines reach. With `shared_files=False` they do not even look.
    """

    workers: int = Field(default=1, ge=1)
    session: Any = Field(default=None, exclude=True, repr=False)
    cores_per_worker: int | None = Field(default=None, ge=1)
    resource_profile: Any = Field(default=None, exclude=True, repr=False)
    spool_dir: str | None = None
    host: str | None = None
    start_timeout: float = Field(default=120.0, gt=0)
    carry_mb: int = Field(default=512, ge=0)
    depot: str | None = Field(default=None, pattern="^.+://")
    shared_files: bool = True

    def __init__(self, workers: int = 1, **values: Any) -> None:
        super().__init__(workers=workers, **values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @property
    def threads_per_worker(self) -> int | None:
        """How many threads a worker has, if that is said."""
        return self.cores_per_worker


Cluster = Local | Spark
