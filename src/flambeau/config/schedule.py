"""How the learning rate changes over the training."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from flambeau.config.settings import Settings


class Schedule(Settings):
    """The factor on the learning rate at each step.

    `warmup` steps rise linearly from `warmup_from` to 1; then `kind` takes over until the last
    step (or `steps` after the warm-up), falling to `end` times the learning rate.
    `kind="step"` multiplies by `gamma` at each of `milestones` (in steps or epochs, by `unit`).
    `kind="torch"` uses the scheduler class `scheduler` (a name of `torch.optim.lr_scheduler`, such
    as `OneCycleLR`, or `module:Class`) with `args`, advanced once per `unit`; ReduceLROnPlateau is
    advanced after each evaluation, and watches `metric`, by default the one that decides which
    checkpoint is the best.
    """

    kind: Literal["constant", "step", "linear", "cosine", "polynomial", "torch"] = "constant"
    warmup: int = Field(default=0, ge=0)
    warmup_from: float = Field(default=0.0, ge=0.0, le=1.0)
    steps: int | None = Field(default=None, gt=0)
    end: float = Field(default=0.0, ge=0.0)
    power: float = Field(default=2.0, gt=0.0)
    gamma: float = Field(default=0.1, gt=0.0)
    milestones: tuple[int, ...] = ()
    unit: Literal["step", "epoch"] = "step"
    scheduler: str | None = Field(default=None, pattern=r"^([\w.]+:[\w.]+|\w+)$")
    args: dict[str, Any] = {}
    metric: str | None = None

    @field_validator("scheduler")
    @classmethod
    def _in_full(cls, name: str | None) -> str | None:
        return name if name is None or ":" in name else f"torch.optim.lr_scheduler:{name}"

    @model_validator(mode="after")
    def _complete(self) -> "Schedule":
        if self.kind == "step" and not self.milestones:
            raise ValueError("kind='step' needs milestones, e.g. milestones=(30, 60)")
        if (self.kind == "torch") != (self.scheduler is not None):
            raise ValueError("kind='torch' and scheduler='module:Class' go together")
        if self.metric is not None and self.kind != "torch":
            raise ValueError(
                "metric= is for kind='torch' with "
                "scheduler='torch.optim.lr_scheduler:ReduceLROnPlateau'"
            )
        return self
