"""How replicas agree: the settings of each strategy."""

from typing import Literal

from pydantic import Field, model_validator

from flambeau.config.settings import Settings


class AllReduce(Settings):
    """Every worker holds the whole model; gradients are summed over all workers at each step.

    `local_sgd=k` averages the weights every k steps instead. `sync_batch_norm` computes batch
    statistics over all workers. `find_unused` is for models that skip parameters in some steps.
    """

    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    local_sgd: int | None = Field(default=None, ge=1)
    sync_batch_norm: bool = False
    bucket_mb: float = Field(default=25.0, gt=0)
    find_unused: bool = False

    @model_validator(mode="after")
    def _fits(self) -> "AllReduce":
        if self.local_sgd is not None and self.compression != "none":
            raise ValueError("local_sgd exchanges weights, not gradients; leave compression out")
        return self
