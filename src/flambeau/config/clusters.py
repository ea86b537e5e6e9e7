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
