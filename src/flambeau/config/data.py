"""Sources of training data, as workers open them."""

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from flambeau.config.code import CodeRef
from flambeau.config.settings import Settings, nearest

FILE_FORMATS = (
    "arrow",
    "cifar10",
    "cifar100",
    "criteo",
    "csv",
    "dummy",
    "idx",
    "images",
    "libffm",
    "libfm",
    "libsvm",
    "parquet",
    "svhn",
    "tsv",
)
#: Formats that cannot be inferred from the content, since any text may be in any of them.
TEXT_FORMATS = ("criteo", "csv", "dummy", "libffm", "libfm", "libsvm", "tsv")


class FileData(Settings):
    """Files of a known format; with `format=None` it is inferred from names and first bytes.

    `share` selects the rows between two fractions, in order: `(0.5, 1)` is the second half.
    """

    kind: Literal["files"] = "files"
    path: str | tuple[str, ...]
    format: str | None = None
    options: dict[str, Any] = {}
    share: tuple[float, float] | None = None

    @field_validator("format")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name is not None and name not in FILE_FORMATS:
            raise ValueError(f"unknown format; {nearest(name, FILE_FORMATS)}")
        return name

    @field_validator("share")
    @classmethod
    def _some_rows(cls, share: tuple[float, float] | None) -> tuple[float, float] | None:
        if share is not None and not 0 <= share[0] < share[1] <= 1:
            raise ValueError("give two fractions of the rows, such as [0, 0.8] or [0.8, 1]")
        return share


class ArrayRef(Settings):
    """A column in memory-mapped storage: an inherited file descriptor, or a file.

    A relative `path` is relative to the run directory; the file exists while the job runs.
    """

    fd: int | None = None
    path: str | None = None
    offset: int = 0
    dtype: str
    shape: tuple[int, ...]

    @property
    def lasts(self) -> bool:
        """Whether the column can be read after the job, because it is in a file of the user."""
        return self.path is not None and os.path.isabs(self.path)


class ArrayData(Settings):
    """Columns of equal length; `inputs` and `labels` are column names, in order of position."""

    kind: Literal["arrays"] = "arrays"
    columns: dict[str, ArrayRef]
    inputs: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


class DatasetData(Settings):
    """A torch Dataset, map-style or iterable."""

    kind: Literal["dataset"] = "dataset"
    code: CodeRef


class LoaderData(Settings):
    """A function `f(shard) -> iterable of batches`, called on each worker."""

    kind: Literal["loader"] = "loader"
    code: CodeRef


class SpooledData(Settings):
    """A data frame of the cluster, of which each agent writes a part to a file for its workers.

    `name` identifies it among the data frames of the job, `columns` are the columns that are
    written, and `engine` is the system that the data frame belongs to.
    """

    kind: Literal["spooled"] = "spooled"
    engine: Literal["spark", "ray"] = "spark"
    name: str
    columns: tuple[str, ...]


class FrameData(Settings):
    """A data frame of the process that started the job, in an Arrow file while the job runs.

    `fd` is the file's inherited descriptor, or `file` its path in the run directory; `arrow_schema`
    has the columns and types (base64).
    """

    kind: Literal["frame"] = "frame"
    fd: int | None = None
    file: str | None = None
    rows: int
    arrow_schema: str


DataRef = Annotated[
    FileData | ArrayData | DatasetData | LoaderData | SpooledData | FrameData,
    Field(discriminator="kind"),
]


def is_frame(data: Any) -> bool:
    """Return whether `data` is an in-memory data frame: pandas, or one that exports to Arrow."""
    streams = hasattr(type(data), "__arrow_c_stream__") and not is_spark_frame(data)
    return streams or is_pandas(data)


def is_pandas(data: Any) -> bool:
    """Return whether `data` is a pandas DataFrame; pandas need not be installed."""
    return _is_a_data_frame_of(data, "pandas.")


def is_spark_frame(data: Any) -> bool:
    """Return whether `data` is a Spark DataFrame, of any kind of session."""
    return _is_a_data_frame_of(data, "pyspark.sql")


def is_ray_dataset(data: Any) -> bool:
    """Return whether `data` is a Ray Dataset; Ray need not be installed."""
    return any(
        kind.__module__.startswith("ray.data") and kind.__name__ == "Dataset"
        for kind in type(data).__mro__
    )


def _is_a_data_frame_of(data: Any, package: str) -> bool:
    return any(
        kind.__module__.startswith(package) and kind.__name__ == "DataFrame"
        for kind in type(data).__mro__
    )


#: Maps from other binary labels to 0 and 1, by the label that occurs in one form only.
BINARY_FORMS = {-1.0: {-1.0: 0.0, 1.0: 1.0}, 2.0: {1.0: 0.0, 2.0: 1.0}}


def shown_map(mapping: Mapping[float, float]) -> str:
    """Return a label map as the user writes it."""
    pairs = ", ".join(f"{old:g}: {new:g}" for old, new in mapping.items())
    return f"label_map={{{pairs}}}"


def map_advice(label: float) -> str:
    """Return advice how to map labels, one of which is `label`, to the required ones."""
    form = BINARY_FORMS.get(label)
    return f"map others with {'label_map={label: number}' if form is None else shown_map(form)}"
