"""Settings of each strategy: how replicas of the model agree."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from flambeau.config.settings import Settings


class AllReduce(Settings):
    """Strategy with the whole model on every worker; gradients are summed over all workers.

    Gradients are summed at each step; `local_sgd=k` averages the weights every k steps instead.
    `sync_batch_norm` computes batch statistics over all workers. `find_unused` is for models that
    skip parameters in some steps.
    """

    kind: Literal["all_reduce"] = "all_reduce"
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


class ParameterServer(Settings):
    """Strategy with weights and tables on `servers` processes, which apply the gradients.

    `synchronous`: one update from all workers at each step, as with all-reduce; with
    `backup_workers=b`, a step does not wait for the b slowest. `asynchronous`: each gradient is
    applied on arrival. `bounded`: the same, but no worker is more than `staleness` steps ahead of
    the slowest one.

    `compression` sends gradients in half precision; `encrypt` encrypts all traffic. A gradient that
    is not finite ends the job, or is dropped and counted (`non_finite="skip"`). If a server does
    not respond for `timeout` seconds, that is an error.
    """

    kind: Literal["parameter_server"] = "parameter_server"
    consistency: Literal["synchronous", "bounded", "asynchronous"] = "synchronous"
    servers: int = Field(default=1, ge=1)
    backup_workers: int = Field(default=0, ge=0)
    staleness: int = Field(default=4, ge=0)
    compression: Literal["none", "fp16", "bf16"] = "none"
    encrypt: bool = False
    non_finite: Literal["fail", "skip"] = "fail"
    timeout: float = Field(default=60.0, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> "ParameterServer":
        if self.backup_workers and self.consistency != "synchronous":
            raise ValueError(
                f"backup_workers is for synchronous training; {self.consistency} workers do not "
                "wait for each other"
            )
        if "staleness" in self.model_fields_set and self.consistency != "bounded":
            default = type(self).model_fields["staleness"].default
            if self.staleness != default:
                raise ValueError("staleness is for consistency='bounded'")
        return self

    @property
    def lockstep(self) -> bool:
        """Whether all workers make the same steps."""
        return self.consistency == "synchronous"


class Hybrid(Settings):
    """Strategy with all-reduce for dense weights, and tables on `servers` processes.

    `asynchronous` servers apply the gradients of tables on arrival, `synchronous` ones once per
    step for all workers. The other settings are those of the two strategies that it combines.
    """

    kind: Literal["hybrid"] = "hybrid"
    consistency: Literal["synchronous", "asynchronous"] = "asynchronous"
    servers: int = Field(default=1, ge=1)
    compression: Literal["none", "fp16", "bf16"] = "none"
    encrypt: bool = False
    timeout: float = Field(default=60.0, gt=0)
    sync_batch_norm: bool = False
    bucket_mb: float = Field(default=25.0, gt=0)
    find_unused: bool = False

    @property
    def lockstep(self) -> bool:
        """Always True: workers make the same steps, since they average dense gradients at each."""
        return True

    @property
    def dense(self) -> AllReduce:
        """Settings of the all-reduce part."""
        return AllReduce(
            compression=self.compression,
            sync_batch_norm=self.sync_batch_norm,
            bucket_mb=self.bucket_mb,
            find_unused=self.find_unused,
        )


def _kind(value: Any) -> Any:
    if isinstance(value, dict):
        return value.get("kind", "all_reduce")
    return getattr(value, "kind", None)


Strategy = Annotated[
    Annotated[AllReduce, Tag("all_reduce")]
    | Annotated[ParameterServer, Tag("parameter_server")]
    | Annotated[Hybrid, Tag("hybrid")],
    Discriminator(
        _kind,
        custom_error_type="strategy",
        custom_error_message="give AllReduce(...), ParameterServer(...) or Hybrid(...)",
    ),
]
Served = ParameterServer | Hybrid
