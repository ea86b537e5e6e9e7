"""Opening of the source that reads the described data."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from flambeau.config import (
    ArrayData,
    CodeRef,
    DataRef,
    DatasetData,
    FileData,
    FrameData,
    LoaderData,
)
from flambeau.config.settings import nearest
from flambeau.data.source import Source
from flambeau.data.sources.arrays import ArraySource
from flambeau.data.sources.arrow import ArrowSource
from flambeau.data.sources.cifar import CifarSource
from flambeau.data.sources.formats import infer_format
from flambeau.data.sources.frame_source import open_frame
from flambeau.data.sources.idx import IdxSource
from flambeau.data.sources.image_folder import ImageFolderSource
from flambeau.data.sources.parquet import ParquetSource
from flambeau.data.sources.paths import Paths
from flambeau.data.sources.row_share import share_of
from flambeau.data.sources.svhn import SvhnSource
from flambeau.data.sources.text.criteo import open_criteo
from flambeau.data.sources.text.csv import CsvSource
from flambeau.data.sources.text.dummy import open_dummy
from flambeau.data.sources.text.libffm import open_libffm
from flambeau.data.sources.text.libsvm import open_libsvm
from flambeau.data.sources.torch_dataset import (
    IterableDatasetSource,
    LoaderSource,
    MapDatasetSource,
)
from flambeau.data.sources.urls import is_url, local_path, shown
from flambeau.errors import ConfigError, DataError

_OF_ONE_PATH: dict[str, Callable[..., Source]] = {
    "idx": IdxSource,
    "images": ImageFolderSource,
}
_OF_PATHS: dict[str, Callable[..., Source]] = {
    "arrow": ArrowSource,
    "cifar10": functools.partial(CifarSource, classes=10),
    "cifar100": functools.partial(CifarSource, classes=100),
    "criteo": open_criteo,
    "csv": CsvSource,
    "dummy": open_dummy,
    "libffm": open_libffm,
    "libfm": functools.partial(open_libsvm, first_id=0),
    "libsvm": open_libsvm,
    "parquet": ParquetSource,
    "svhn": SvhnSource,
    "tsv": functools.partial(CsvSource, delimiter="\t"),
}
_ONLY_LOCAL = ("cifar10", "cifar100", "idx", "images", "svhn")


def open_source(data: DataRef, load_code: Callable[[CodeRef], Any]) -> Source:
    """Return the source for `data`; `load_code` loads the user's Dataset or loader function."""
    if isinstance(data, FileData):
        return _open_files(data)
    if isinstance(data, ArrayData):
        return ArraySource(data)
    if isinstance(data, FrameData):
        return open_frame(data)
    if isinstance(data, DatasetData):
        return _open_dataset(load_code(data.code))
    if isinstance(data, LoaderData):
        return LoaderSource(load_code(data.code))
    raise DataError(
        f"the {data.name} data was a data frame of the cluster, which no longer exists: give the "
        "data again, as files or arrays"
    )


def _open_files(data: FileData) -> Source:
    name = data.format or infer_format(data.path)
    if name in _ONLY_LOCAL:
        _require_local(data.path, name)
    if name in _OF_PATHS:
        path: Paths = data.path
        source = _OF_PATHS[name]
    else:
        path, source = _single(data.path, name), _OF_ONE_PATH[name]
    _require_known_options(name, source, data.options)
    opened = source(path, **data.options)
    return opened if data.share is None else share_of(opened, data.share, name)


def _require_local(path: Paths, name: str) -> None:
    for each in (path,) if isinstance(path, str) else path:
        if is_url(each):
            raise DataError(f"format {name!r} reads local files only: copy {shown(each)!r} first")


def _single(path: Paths, name: str) -> str:
    paths = (path,) if isinstance(path, str) else path
    if len(paths) != 1:
        raise DataError(f"format {name!r} takes one path, not {len(paths)}")
    return local_path(paths[0])


def _require_known_options(name: str, source: Callable[..., Source], given: dict[str, Any]) -> None:
    parameters = inspect.signature(source).parameters.values()
    known = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    for option in given:
        if option not in known:
            hint = nearest(option, known) if known else "it has none"
            raise ConfigError(f"unknown option {option!r} of format {name!r}; {hint}")


def _open_dataset(dataset: Any) -> Source:
    if isinstance(dataset, Source):
        return dataset
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return MapDatasetSource(dataset)
    if hasattr(dataset, "__iter__"):
        return IterableDatasetSource(dataset)
    raise DataError(
        f"{type(dataset).__name__} is not a dataset: it has neither __getitem__ and __len__ "
        f"nor __iter__"
    )
