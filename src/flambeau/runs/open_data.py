"""Opening of a job's data, binding and loader from its settings."""

import dataclasses
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from flambeau.checkpoint import RunDirectory
from flambeau.config import (
    ArrayData,
    Binding,
    CodeRef,
    DataRef,
    DatasetData,
    FileData,
    Images,
    JobSettings,
    SpooledData,
)
from flambeau.config.data import is_frame
from flambeau.config.plural import number_of
from flambeau.coordination.payloads import Site
from flambeau.coordination.plans import HomePlan, IndexedPlan, StreamedPlan
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.data.data_kinds import takes_an_argument
from flambeau.data.data_loaders import refuse_data_loader
from flambeau.data.frames import as_table
from flambeau.data.images import ImageTransform
from flambeau.data.loader import (
    IndexedLoader,
    IterableLoader,
    Loader,
    StreamedLoader,
    Transform,
)
from flambeau.data.sampling import KeepNegatives
from flambeau.data.source import IndexedSource, IterableSource, Share, Source, StreamedSource
from flambeau.data.sources.arrays import ArraySource
from flambeau.data.sources.engine_frames import EngineFrameSource
from flambeau.data.sources.formats import find_format
from flambeau.data.sources.frame_source import frame_source
from flambeau.data.sources.image_folder import ImageFolderSource
from flambeau.data.sources.opening import open_source
from flambeau.data.sources.shared_arrays import array_columns, share_arrays
from flambeau.data.sources.torch_dataset import LoaderSource
from flambeau.errors import DataError
from flambeau.inference.given_rows import kind_of
from flambeau.inference.shorthands import expand
from flambeau.runs.field_names import check_field_names
from flambeau.runs.open_model import LoadCode

if TYPE_CHECKING:
    from flambeau.features.pipeline import Pipeline

#: Folder of a run's features pipeline, in the folder of its code.
FEATURES = "features"


def shape_of(source: Source) -> Shape:
    """Return the columns of a source; of an iterator, this reads the first batch."""
    if not isinstance(source, IterableSource) and source.features is not None:
        return Shape(source.features.columns)
    if isinstance(source, StreamedSource):
        return Shape(tuple(source.schema.names))
    if isinstance(source, IndexedSource):
        return Shape(source.columns, source.positional, source.labels)
    first = next(iter(source.batches(Share(0, 1, 0, 0), 1)), None)
    if first is None:
        raise DataError("the data's iterator yields no items")
    return Shape(tuple(first.columns), source.positional, source.labels)


def dtype_of(model: nn.Module) -> torch.dtype:
    """Return the dtype of the model's weights, to which inputs are converted."""
    floating = (p.dtype for p in model.parameters() if p.is_floating_point())
    return next(floating, torch.get_default_dtype())


def make_binder(
    settings: JobSettings, model: nn.Module, source: Source, *, whole_batch: bool
) -> Binder:
    """Make the binding of a source's columns to the model."""
    check_field_names(model, settings.binding)
    dtype, shape = dtype_of(model), shape_of(source)
    trained = settings.train
    if isinstance(trained, ArrayData) and not shape.positional:
        # In a file for a model that was trained on arrays, columns may have the arrays' names.
        labels = tuple(name for name in trained.labels if name in shape.columns)
        if trained.inputs and set(trained.inputs) <= set(shape.columns):
            shape = Shape(shape.columns, trained.inputs, labels)
    features = None if isinstance(source, IterableSource) else source.features
    return Binder(
        settings.binding,
        model.forward,
        shape,
        dtype,
        whole_batch=whole_batch,
        features=features,
        expand=expand,
    )


def wants_whole_batch(settings: JobSettings) -> bool:
    """Return whether user code receives the batch, and so may use any of its columns."""
    losses = settings.loss.values() if isinstance(settings.loss, dict) else [settings.loss]
    own_loss = any(isinstance(loss, CodeRef) for loss in losses)
    return settings.step is not None or own_loss


def image_transform(
    settings: Images | None, source: Source, *, train: bool, seed: int
) -> Transform | None:
    """Return the transform of image batches; integer images always become numbers from 0 to 1."""
    has_images = isinstance(source, IndexedSource) and source.positional == ("image",)
    if settings is None and not has_images:
        return None
    transform = ImageTransform(settings or Images())

    def apply(batch: Batch) -> Batch:
        return transform(batch, train=train, seed=seed)

    return apply


def open_data(data: DataRef, load_code: LoadCode, binding: Binding | None = None) -> Source:
    """Open the source that a setting names. A function may also return arrays or frames."""
    if isinstance(data, DatasetData):
        given = _called(data.code, load_code)
        refuse_data_loader(given, data.code.name)
        if isinstance(given, partial):
            return LoaderSource(given)
        if is_frame(given):
            return frame_source(as_table(given, data.code.name), data.code.name)
        if isinstance(given, tuple | list | dict | np.ndarray | torch.Tensor):
            return array_source(given, binding)
        return open_source(data, lambda _: given)
    return open_source(data, load_code)


def attach_features(source: Source, run: RunDirectory, settings: JobSettings, data: Any) -> Source:
    """Return a source of `data` with the job's features attached, if the job has any."""
    if settings.features is None:
        return source
    from flambeau.runs.open_features import with_features  # loads Numba, which is rarely needed

    return with_features(source, run, settings, data)


def as_raw_files(data: FileData, run: RunDirectory) -> FileData:
    """Return files as the pipeline of a run reads them."""
    from flambeau.runs import open_features  # loads Numba, which is rarely needed

    return open_features.as_raw_files(data, run)


def fitted_pipeline(run: RunDirectory) -> "Pipeline":
    """Return the pipeline of a run, whose code the caller runs anyway."""
    from flambeau.runs.open_features import load_pipeline

    return load_pipeline(run)


def raw_kinds(run: RunDirectory, source: Source | None, binder: Binder) -> dict[str, str]:
    """Return the kinds of the raw columns from which a run makes those that its binder takes."""
    from flambeau.runs.open_features import raw_schema

    schema = raw_schema(run, source, binder)
    return {field.name: kind_of(field.type) for field in schema}


def validation_data(settings: JobSettings) -> DataRef:
    """Return the validation data; files of unknown format are read like those of `train`."""
    valid, train = settings.valid, settings.train
    assert valid is not None
    if not isinstance(valid, FileData) or not isinstance(train, FileData):
        return valid
    if valid.format is not None or find_format(valid.path) is not None:
        return valid
    options = {**train.options, **valid.options}
    known = train.format or find_format(train.path)
    return valid.model_copy(update={"format": known, "options": options})


def open_spooled(data: SpooledData, site: Site) -> EngineFrameSource:
    """Open the part of a data frame that this worker's agent has written to a file."""
    descriptor = site.spooled.get(data.name)
    return EngineFrameSource(descriptor, site.spools[data.name], site.home, data.columns)


def _called(ref: CodeRef, load_code: LoadCode) -> Any:
    """Resolve a reference: return a function of a shard unchanged, or the data."""
    if not ref.call:
        return load_code(ref)
    found = load_code(ref.model_copy(update={"call": False}))
    if not callable(found) or hasattr(type(found), "__getitem__"):
        return found
    if isinstance(found, type) or not takes_an_argument(partial(found, **ref.args)):
        return load_code(ref)
    return partial(found, **ref.args)


def array_source(given: Any, binding: Binding | None = None) -> ArraySource:
    """Return arrays of this process as a source; the binding determines which may have NaN."""
    columns, inputs, labels = array_columns(given)
    missing = (binding or Binding()).nullable(columns, labels)
    refs, descriptors = share_arrays(columns, Path(tempfile.gettempdir()), missing)
    source = ArraySource(ArrayData(columns=refs, inputs=inputs, labels=labels))
    for descriptor in descriptors:
        os.close(descriptor)  # the mapping remains
    return source


def training_transform(
    settings: JobSettings, source: Source, binder: Binder, seed: int
) -> Transform | None:
    """Return the transform of training batches: images, and rows to leave out."""
    transform = image_transform(settings.images, source, train=True, seed=seed)
    keep, labels = settings.loading.keep_negatives, binder.label_columns()
    if keep == 1.0:
        return transform
    if len(labels) != 1:
        raise DataError("loading.keep_negatives needs label=: the column that says which are 0")
    sample = KeepNegatives(keep, labels[0], seed)
    return sample if transform is None else lambda batch: transform(sample(batch))


@dataclasses.dataclass(frozen=True)
class Place:
    """The worker for which a loader is, and the number of workers."""

    worker: int = 0
    workers: int = 1


def skipped_rows(source: Source) -> int:
    """Return the number of bad rows of a source's files that are left out."""
    if not isinstance(source, StreamedSource):
        return 0
    source.shards()  # counts them
    return source.skipped_rows


def skipped_text(rows: int) -> str:
    """Return the message for the user about rows that are left out."""
    return (
        f"{number_of(rows, 'bad row')} of the data {'was' if rows == 1 else 'were'} left out, as "
        "on_bad_row='skip' asks for"
    )


def make_loader(
    source: Source,
    settings: JobSettings,
    binder: Binder,
    place: Place,
    *,
    train: bool,
) -> Loader:
    """Make the loader of one worker: shuffled for training, in order for evaluation."""
    loading = settings.loading
    size = settings.batch_size if train else settings.evaluation_rows
    shuffle, drop_last = train and loading.shuffle, train and loading.drop_last
    # Workers at the same batch number must not draw the same crops.
    seed = settings.seed * 65_537 + place.worker
    if train:
        transform = training_transform(settings, source, binder, seed)
    else:
        transform = image_transform(settings.images, source, train=False, seed=seed)
    if isinstance(source, IterableSource):
        share = partial(Share, place.worker, place.workers, seed=settings.seed)
        return IterableLoader(
            source, lambda epoch: share(epoch=epoch), size, binder, transform, loading
        )
    if isinstance(source, StreamedSource):
        rows = tuple(shard.rows for shard in source.shards())
        _check_rows(sum(rows), place)
        streamed: HomePlan | StreamedPlan
        if isinstance(source, EngineFrameSource):
            agents = tuple(source.agents_of(place.workers))
            streamed = HomePlan(source.homes, agents, size, settings.seed, shuffle, drop_last)
        else:
            streamed = StreamedPlan(rows, size, place.workers, settings.seed, shuffle, drop_last)
        _check_steps(streamed.steps(), sum(rows), place.workers, size)
        return StreamedLoader(source, streamed, place.worker, binder, transform, loading)
    _check_rows(len(source), place)
    plan = IndexedPlan(len(source), size, place.workers, settings.seed, shuffle, drop_last)
    _check_steps(plan.steps(), len(source), place.workers, size)
    processes = loading.workers
    if processes is None:
        processes = 1 if isinstance(source, ImageFolderSource) else 0
    return IndexedLoader(source, plan, place.worker, binder, transform, loading, processes)


def _check_rows(rows: int, place: Place) -> None:
    if rows < place.workers:
        raise DataError(
            f"the data has {number_of(rows, 'row')} for {place.workers} workers; use fewer workers"
        )


def _check_steps(steps: int, rows: int, workers: int, size: int) -> None:
    if not steps:
        raise DataError(
            f"with drop_last no step is left: the data has {number_of(rows, 'row')}, fewer than "
            f"{size} x {workers}; use a smaller batch_size"
        )
