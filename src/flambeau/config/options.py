"""Groups of job options."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from flambeau.config.settings import Settings

CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]


class Compute(Settings):
    """Settings of the computation of one update.

    `accumulate=k` computes a worker's batch in k parts and adds their gradients, which gives the
    same result with less memory. `lr_scaling` multiplies the learning rate by the number of workers
    (`"linear"`) or its square root (`"sqrt"`). `compile` may be a mode of `torch.compile`, such as
    `"max-autotune"`.
    """

    precision: Literal["fp32", "bf16"] = "fp32"
    device: str = "auto"
    compile: bool | CompileMode = False
    accumulate: int = Field(default=1, ge=1)
    clip_norm: float | None = Field(default=None, gt=0)
    clip_value: float | None = Field(default=None, gt=0)
    lr_scaling: Literal["none", "linear", "sqrt"] = "none"

    @field_validator("device")
    @classmethod
    def _device(cls, device: str) -> str:
        if device not in ("auto", "cpu", "cuda"):
            raise ValueError("use 'auto', 'cpu' or 'cuda' (each worker takes its own GPU)")
        return device


class Loading(Settings):
    """Settings of data loading.

    `workers` is the number of processes (per training worker) that run a Dataset's Python code; by
    default one for image folders and none for other data, since Arrow and array data need none.
    `shuffle_rows` is the size in rows of the buffer in which streamed files (Parquet, CSV, Arrow)
    are shuffled. `drop_last` leaves out batches that are not full, with `"when_possible"` only if
    there are full ones. `read_ahead` is in batches. `keep_negatives` is the fraction of rows with
    label 0 that are trained on; validation and predictions are corrected for it, so that
    probabilities are right.
    """

    shuffle: bool = True
    drop_last: bool | Literal["when_possible"] = False
    workers: int | None = Field(default=None, ge=0)
    read_ahead: int = Field(default=4, ge=1)
    shuffle_rows: int = Field(default=131_072, ge=1)
    keep_negatives: float = Field(default=1.0, gt=0.0, le=1.0)

    def window(self, batch_size: int) -> int:
        """Return the number of rows that are shuffled together: `shuffle_rows` in whole batches."""
        return batch_size * max(1, self.shuffle_rows // batch_size)


class Images(Settings):
    """Normalisation, random crops and flips of image batches `[batch, channels, height, width]`.

    Integer images are divided by 255 first. Crops and flips apply to training only. `column` is the
    image column, by default the only one with four dimensions.
    """

    column: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    crop_padding: int = Field(default=0, ge=0)
    flip: bool = False

    @model_validator(mode="after")
    def _pairs(self) -> "Images":
        if (self.mean is None) != (self.std is None):
            raise ValueError("mean and std go together")
        if self.mean is not None and self.std is not None:
            if len(self.mean) != len(self.std):
                raise ValueError("mean and std need one value per channel each")
            if min(self.std) <= 0:
                raise ValueError("std must be positive")
        return self


class Checkpoints(Settings):
    """Settings of when checkpoints are written and which are kept.

    A checkpoint is written every `every_steps` steps, every `every_epochs` epochs, or both, and at
    the end. The last `keep` are kept, and the best one by the metric `best`. With `incremental`,
    only every `full_every`-th checkpoint is full; the others contain only those table rows that
    have changed since the last full one.
    """

    every_steps: int | None = Field(default=None, ge=1)
    every_epochs: int | None = Field(default=1, ge=1)
    keep: int = Field(default=3, ge=1)
    best: str = "loss"
    mode: Literal["auto", "min", "max"] = "auto"
    incremental: bool = False
    full_every: int = Field(default=10, ge=1)


class Evaluation(Settings):
    """Settings of evaluations on the validation data.

    They take place every n steps, every n epochs, or both, and at the end. AUC is exact up to
    `exact_rows` rows; above that, scores are counted in fine bins. `train=True` adds the same
    metrics, named `train/...`, over the rows trained on since the last evaluation, each predicted
    before the update that used it.
    """

    every_steps: int | None = Field(default=None, ge=1)
    every_epochs: int | None = Field(default=1, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    exact_rows: int = Field(default=5_000_000, ge=1)
    train: bool = False


class EarlyStopping(Settings):
    """Condition that ends the training: `metric` reaches `target`, or no longer improves.

    It no longer improves if `patience` evaluations in a row were not better by `min_delta`. By
    default, `patience` is 3, or unlimited if there is a `target`.
    """

    metric: str = "loss"
    patience: int | None = Field(default=None, ge=1)
    min_delta: float = Field(default=0.0, ge=0.0)
    mode: Literal["auto", "min", "max"] = "auto"
    target: float | None = Field(default=None, allow_inf_nan=False)

    @property
    def limit(self) -> int | None:
        """Number of evaluations without improvement that ends the training; None: no limit."""
        return 3 if self.patience is None and self.target is None else self.patience


class Observe(Settings):
    """Settings of the output about a run: files and progress display.

    `profile=(10, 20)` traces steps 10 to 19 with torch.profiler. `every_seconds` is the interval of
    the plain progress lines that replace the bar if there is no terminal. `prometheus` keeps the
    latest values in `metrics.prom`, for a text-file collector. `report` writes a page with charts,
    `report.html`, when the job ends.
    """

    progress: Literal["auto", "bar", "lines", "none"] = "auto"
    every_seconds: float = Field(default=5.0, gt=0)
    tensorboard: bool = True
    mlperf_log: bool = False
    prometheus: bool = False
    report: bool = True
    profile: tuple[int, int] | None = None

    @field_validator("profile")
    @classmethod
    def _range(cls, profile: tuple[int, int] | None) -> tuple[int, int] | None:
        if profile is not None and not 0 <= profile[0] < profile[1]:
            raise ValueError("give (first, last) steps with 0 <= first < last, e.g. (10, 20)")
        return profile


class Recovery(Settings):
    """Settings of failure detection and restarts.

    A worker that makes no step for `progress_timeout` seconds after its first one counts as lost,
    even if it still sends heartbeats; None: no limit.
    """

    max_restarts: int = Field(default=0, ge=0)
    heartbeat_timeout: float = Field(default=20.0, gt=1.0)
    progress_timeout: float | None = Field(default=600.0, gt=1.0)
    grace_seconds: float = Field(default=20.0, gt=0.0)
