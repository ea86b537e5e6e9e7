"""Learning rate schedules."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from flambeau.config.settings import Settings


class Schedule(Settings):
    """Schedule of the factor by which the learning rate is multiplied at each step.

    In the first `warmup` steps it rises linearly from `warmup_from` to 1; then `kind` applies.
    Decaying kinds decay from step `start` (by default the end of the warm-up; the factor is 1
    before) to the last step, or for `steps` steps, to `end`, and stay there.
    `kind="step"` multiplies by `gamma` at each of `milestones` (in steps or epochs, by `unit`).
    `kind="torch"` uses the scheduler class `scheduler` (a name in `torch.optim.lr_scheduler`, such
    as `OneCycleLR`, or `module:Class`) with `args`, advanced once per `unit`; ReduceLROnPlateau is
    advanced after each evaluation and monitors `metric`, by default the one that determines the
    best checkpoint.
    """

    kind: Literal["constant", "step", "linear", "cosine", "polynomial", "torch"] = "constant"
    warmup: int = Field(default=0, ge=0)
    warmup_from: float = Field(default=0.0, ge=0.0, le=1.0)
    start: int | None = Field(default=None, ge=0)
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
    def _starts_after_the_warm_up(self) -> "Schedule":
        if self.start is None:
            return self
        if self.kind not in ("linear", "cosine", "polynomial"):
            raise ValueError(
                "start is where kind='linear', 'cosine' or 'polynomial' begins to fall; leave it "
                f"out with kind='{self.kind}'"
            )
        if self.start < self.warmup:
            raise ValueError(
                f"start={self.start} is before the end of the warm-up of {self.warmup} steps: give "
                f"at least {self.warmup}, or leave it out"
            )
        return self

    @property
    def fall_starts(self) -> int:
        """First step of the decay."""
        return self.warmup if self.start is None else self.start

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
