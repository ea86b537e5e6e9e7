"""The small value objects that group the options of a job."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from flambeau.config.settings import Settings

CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]


class Compute(Settings):
    """How one update is computed.

    `accumulate=k` computes a worker's batch in k parts and adds their gradients: the same result
    with less memory. `lr_scaling` multiplies the learning rate by the number of workers
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
    """How data reaches the training loop.

    `workers` are processes (per training worker) for a Dataset's own Python code; by default one
    for image folders and none for the rest, since Arrow and array data need none. `shuffle_rows`
    is the size of the buffer in which rows of streamed files (Parquet, CSV, Arrow) are mixed.
    Batches that are not full are left out with `drop_last`, with `"when_possible"` only beside full
    ones. `read_ahead` is in batches. `keep_negatives` is the share of the rows with label 0 that
    are trained on; validation and predictions are corrected for it, so that probabilities are
    right.
    """

    shuffle: bool = True
    drop_last: bool | Literal["when_possible"] = False
    workers: int | None = Field(default=None, ge=0)
    read_ahead: int = Field(default=4, ge=1)
    shuffle_rows: int = Field(default=131_072, ge=1)
    keep_negatives: float = Field(default=1.0, gt=0.0, le=1.0)

    def window(self, batch_size: int) -> int:
        """Return how many rows are mixed with each other: `shuffle_rows`, in whole batches."""
        return batch_size * max(1, self.shuffle_rows // batch_size)


class Images(Settings):
    """Normalisation, and random crops and flips, on batches of images [batch, channels, h, w].

    Integer images are first divided by 255. Crops and flips apply to training only; `column` is
    the image column (by default the only one with four dimensions).
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
    """When checkpoints are written and which are kept.

    One is written every `every_steps` steps and/or every `every_epochs` epochs, and at the end.
    The last `keep` stay, and the one that is best by `best` (a metric; by default the loss).
    `incremental` saves only those rows of tables that changed since the last full checkpoint,
    which every `full_every`-th is.
    """

    every_steps: int | None = Field(default=None, ge=1)
    every_epochs: int | None = Field(default=1, ge=1)
    keep: int = Field(default=3, ge=1)
    best: str = "loss"
    mode: Literal["auto", "min", "max"] = "auto"
    incremental: bool = False
    full_every: int = Field(default=10, ge=1)


class Evaluation(Settings):
    """When the validation data is evaluated: every n steps and/or epochs, and at the end.

    `exact_rows`: up to this many rows AUC is exact; above, scores are counted in fine bins.
    `train=True` adds the same metrics, named `train/...`, over the rows that were trained on since
    the last evaluation, each as the model saw it before its update.
    """

    every_steps: int | None = Field(default=None, ge=1)
    every_epochs: int | None = Field(default=1, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    exact_rows: int = Field(default=5_000_000, ge=1)
    train: bool = False


class EarlyStopping(Settings):
    """Stop when `metric` is as good as `target`, or no longer improves.

    It no longer improves when `patience` evaluations in a row were not better by `min_delta`;
    `patience` is 3 if nothing is given, and with a `target` alone it does not count.
    """

    metric: str = "loss"
    patience: int | None = Field(default=None, ge=1)
    min_delta: float = Field(default=0.0, ge=0.0)
    mode: Literal["auto", "min", "max"] = "auto"
    target: float | None = Field(default=None, allow_inf_nan=False)

    @property
    def limit(self) -> int | None:
        """The evaluations without improvement that end the training; None: any number is fine."""
        return 3 if self.patience is None and self.target is None else self.patience


class Observe(Settings):
    """What is written about a run, and what is shown.

    `profile=(10, 20)` traces steps 10 to 19 with torch.profiler. `every_seconds` is the interval
    of the plain progress lines that replace the bar when there is no terminal. `prometheus` keeps
    the latest numbers in `metrics.prom`, for a text-file collector. `report` writes a page with
    pictures, `report.html`, when the job ends.
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
    """What happens when a worker is lost, and how soon that is noticed.

    A worker that has made a first step and then none for `progress_timeout` seconds counts as
    lost, although it shows signs of life; None: it does not.
    """

    max_restarts: int = Field(default=0, ge=0)
    heartbeat_timeout: float = Field(default=20.0, gt=1.0)
    progress_timeout: float | None = Field(default=600.0, gt=1.0)
    grace_seconds: float = Field(default=20.0, gt=0.0)
