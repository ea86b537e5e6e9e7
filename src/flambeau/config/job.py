"""Settings of a whole job, complete and as plain values."""

import re
from collections.abc import Collection, Iterable
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from flambeau.config.clusters import Cluster, Local
from flambeau.config.code import CodeRef
from flambeau.config.data import DataRef, SpooledData
from flambeau.config.known_names import LOSS_NAMES, is_metric, metric_choices
from flambeau.config.optimizer import (
    LAYERWISE_OPTIMIZERS,
    OptimizerSetting,
    OptimizerSpec,
    for_tables,
)
from flambeau.config.options import (
    Checkpoints,
    Compute,
    EarlyStopping,
    Evaluation,
    Images,
    Loading,
    Observe,
    Recovery,
)
from flambeau.config.plural import number_of
from flambeau.config.schedule import Schedule
from flambeau.config.settings import Settings, nearest
from flambeau.config.strategies import AllReduce, Hybrid, ParameterServer, Strategy

Columns = str | tuple[str, ...]
Number = Annotated[float, Field(allow_inf_nan=False)]

#: Description of valid ranges of columns, for error messages.
RANGES = "a range counts through one name, such as 'I1:I13'; list other columns one by one"
_RANGE = re.compile(r"^(?P<stem>.*?)(?P<first>\d+):(?P=stem)(?P<last>\d+)$")


def columns(names: str) -> list[str]:
    """Return the column names of a range: `columns("I1:I13")` is `["I1", ..., "I13"]`."""
    match = _RANGE.match(names)
    if match is None:
        raise ValueError(f"{names!r} is not a range of columns: {RANGES}")
    first, last = int(match["first"]), int(match["last"])
    if last < first:
        raise ValueError(f"{names!r} ends before it begins")
    return [f"{match['stem']}{number}" for number in range(first, last + 1)]


def _expand(names: Any) -> Any:
    """Expand the ranges in a setting that names columns."""
    if isinstance(names, str) and _RANGE.match(names):
        return tuple(columns(names))
    if isinstance(names, list | tuple):
        return tuple(
            name for item in names for name in (_expand(item) if _is_several(item) else [item])
        )
    return names


def _is_several(item: Any) -> bool:
    return isinstance(item, list | tuple) or (isinstance(item, str) and bool(_RANGE.match(item)))


LabelSetting = str | tuple[str, ...] | dict[str, str] | None


def label_columns(label: LabelSetting) -> tuple[str, ...]:
    """Return the columns that a label setting names."""
    if label is None or isinstance(label, str):
        return () if label is None else (label,)
    return tuple(label.values()) if isinstance(label, dict) else label


class Binding(Settings):
    """Mapping of data columns to model inputs and labels.

    Input texts are hashed to 64-bit ids, salted with the name of the column; columns that share a
    table need the same salt: `hash={"history": "item"}`. `crosses` combines columns into new
    columns of ids: `{"user_x_ad": ["user", "ad"]}`. `fill` replaces missing numbers in the inputs:
    one number for all columns, or one per column, `{"price": 0.0}`. `label_map` maps labels in the
    data to those to train on: `{-1: 0, 1: 1}`.
    """

    inputs: tuple[str, ...] | dict[str, Columns] | None = None
    label: LabelSetting = None
    label_map: dict[Number, Number] = {}
    weight: str | None = None
    keys: tuple[str, ...] = ()
    group: str | None = None
    hash: dict[str, str] = {}
    crosses: dict[str, tuple[str, ...]] = {}
    fill: Number | dict[str, Number] | None = None

    def nullable(self, columns: Iterable[str], labels: Collection[str]) -> frozenset[str]:
        """Return the array columns that may contain NaN; `labels` are given by position."""
        if isinstance(self.fill, float):
            inputs = set(columns).difference(labels, self.labels, (self.weight or "",))
            return self.maskable.union(inputs)
        return self.maskable.union(self.fill or ())

    @property
    def labels(self) -> tuple[str, ...]:
        """All label columns."""
        return label_columns(self.label)

    @property
    def maskable(self) -> frozenset[str]:
        """Columns that may contain NaN, which means that a row has no label for this task."""
        return frozenset(self.label.values()) if isinstance(self.label, dict) else frozenset()

    @field_validator("crosses")
    @classmethod
    def _crosses_have_parts(cls, crosses: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for name, members in crosses.items():
            if len(members) < 2 or name in members:
                raise ValueError(f"'{name}' must be made of two or more other columns")
        return crosses

    @field_validator("fill", mode="before")
    @classmethod
    def _fill_ranges(cls, fill: Any) -> Any:
        if not isinstance(fill, dict):
            return fill
        return {name: value for key, value in fill.items() for name in _expand([key])}

    @field_validator("inputs", "label", "keys", mode="before")
    @classmethod
    def _ranges(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: _expand(item) for name, item in value.items()}
        return _expand(value)


class JobSettings(Settings):
    """All settings of a job that workers need; saved as `job.yaml`."""

    model: CodeRef
    train: DataRef
    valid: DataRef | None = None
    #: Digest of the pipeline that makes features from raw data, which is saved in the run.
    features: str | None = None
    binding: Binding = Binding()
    loss: str | CodeRef | dict[str, str | CodeRef] | None = None
    step: CodeRef | None = None
    optimizer: OptimizerSetting = OptimizerSpec()
    table_optimizer: OptimizerSpec | None = None
    schedule: Schedule | CodeRef = Schedule()
    metrics: tuple[str, ...] = ()
    batch_size: int = Field(default=128, ge=1)
    epochs: int = Field(default=1, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)
    strategy: Strategy = AllReduce()
    cluster: Cluster = Local()
    compute: Compute = Compute()
    loading: Loading = Loading()
    images: Images | None = None
    checkpoints: Checkpoints = Checkpoints()
    evaluation: Evaluation = Evaluation()
    evaluator: bool = False
    early_stopping: EarlyStopping | None = None
    observe: Observe = Observe()
    recovery: Recovery = Recovery()
    callbacks: tuple[CodeRef, ...] = ()

    @field_validator("loss")
    @classmethod
    def _known_losses(cls, loss: Any) -> Any:
        for name in loss.values() if isinstance(loss, dict) else [loss]:
            if isinstance(name, str) and name not in LOSS_NAMES:
                raise ValueError(f"unknown loss '{name}'; {nearest(name, LOSS_NAMES)}")
        return loss

    @field_validator("metrics")
    @classmethod
    def _known_metrics(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        for name in metrics:
            if not is_metric(name):
                raise ValueError(f"unknown metric '{name}'; {nearest(name, metric_choices())}")
        return metrics

    @field_validator("table_optimizer")
    @classmethod
    def _for_tables(cls, spec: OptimizerSpec | None) -> OptimizerSpec | None:
        return for_tables(spec)

    @property
    def evaluation_rows(self) -> int:
        """Number of rows per batch in evaluations and predictions."""
        return self.evaluation.batch_size or self.batch_size

    @model_validator(mode="after")
    def _strategy_fits(self) -> "JobSettings":
        strategy, workers = self.strategy, self.cluster.workers
        backups = strategy.backup_workers if isinstance(strategy, ParameterServer) else 0
        if backups >= workers and self.cluster.workers_known:
            raise ValueError(
                f"strategy.backup_workers={backups} with "
                f"{number_of(workers, 'worker')}: give 0 to {workers - 1}, so that a step has at "
                "least one gradient"
            )
        if isinstance(strategy, ParameterServer | Hybrid) and isinstance(self.optimizer, dict):
            raise ValueError("several optimizers need AllReduce: servers apply one update a step")
        layerwise = isinstance(self.optimizer, OptimizerSpec) and (
            self.optimizer.name in LAYERWISE_OPTIMIZERS
        )
        if isinstance(strategy, ParameterServer) and layerwise:
            raise ValueError(
                "optimizer='lamb' needs the norm of each whole weight, and servers have ranges "
                "that cut through weights: use Hybrid (tables stay on servers), AllReduce, or adam"
            )
        if isinstance(strategy, Hybrid) and self.compute.clip_norm is not None:
            raise ValueError(
                "compute.clip_norm needs the norm of all gradients, which no process has with "
                "Hybrid: use clip= of the table optimizer and clip_value, or another strategy"
            )
        return self

    @model_validator(mode="after")
    def _data_fits_cluster(self) -> "JobSettings":
        for data in (self.train, self.valid):
            if isinstance(data, SpooledData) and not self.cluster.brings(data.engine):
                frame = "Spark DataFrame" if data.engine == "spark" else "Ray Dataset"
                raise ValueError(
                    f"a {frame} is trained on where it is: give "
                    f"cluster=fb.{data.engine.capitalize()}(workers)"
                )
        if isinstance(self.valid, SpooledData) and self.evaluator:
            raise ValueError(
                "evaluator=True needs all of valid=, and a DataFrame is spread over the workers: "
                "give it as files, or leave evaluator out"
            )
        return self

    @model_validator(mode="after")
    def _can_be_calibrated(self) -> "JobSettings":
        if self.loading.keep_negatives == 1.0:
            return self
        if self.step is not None or self.loss not in ("bce", "bce_prob"):
            raise ValueError(
                "loading.keep_negatives needs loss='bce' or 'bce_prob', whose probabilities can be "
                "corrected for what was left out"
            )
        if not isinstance(self.binding.label, str | None):
            raise ValueError("loading.keep_negatives needs one label, by which rows are left out")
        return self

    @model_validator(mode="after")
    def _fits(self) -> "JobSettings":
        if self.evaluator and self.valid is None:
            raise ValueError("evaluator=True needs valid= data to evaluate on")
        if self.evaluation.train and (self.evaluator or self.step is not None):
            raise ValueError(
                "evaluation.train needs workers that evaluate, and the built-in step: leave "
                "evaluator and step out"
            )
        if self.early_stopping is not None and self.valid is None:
            raise ValueError("early_stopping needs valid= data to watch")
        computed = self.compute
        ignored = computed.accumulate > 1 or computed.compile or computed.precision != "fp32"
        if self.step is not None and ignored:
            raise ValueError(
                "with step= the whole step is yours: compute.accumulate, compile and precision "
                "do not apply; do it inside the step"
            )
        if self.valid is not None and not self.binding.maskable:
            watched = [self.checkpoints.best]
            watched += [self.early_stopping.metric] if self.early_stopping else []
            if isinstance(self.schedule, Schedule) and self.schedule.metric is not None:
                watched.append(self.schedule.metric)
            for name in watched:
                if name not in ("loss", *self.metrics):
                    shown = ", ".join(("loss", *self.metrics))
                    raise ValueError(
                        f"there is no metric '{name}' to watch; available metrics: {shown}: add it "
                        "to metrics="
                    )
        if self.evaluator and self.early_stopping is not None:
            raise ValueError("early_stopping needs the workers to evaluate; leave evaluator out")
        return self

    @model_validator(mode="after")
    def _metrics_have_columns(self) -> "JobSettings":
        if "gauc" in self.metrics and self.binding.group is None:
            raise ValueError(
                "metric 'gauc' needs group=, the column of those who rank (for example the user)"
            )
        return self
