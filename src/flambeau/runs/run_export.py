"""Exports of a run: from its settings and a checkpoint to the content of an export."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from flambeau.checkpoint import RunDirectory, lease, parse_reference, resolve
from flambeau.checkpoint.manifest import MANIFEST
from flambeau.config import ArrayData, FrameData, Images, JobSettings, SpooledData
from flambeau.data.arrow_columns import as_columns
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.data.blank_rows import blank_rows
from flambeau.data.jagged import Jagged
from flambeau.data.loader import in_order
from flambeau.data.source import IndexedSource, IterableSource, Source, StreamedSource
from flambeau.data.sources.frame_source import FrameSource, schema_of_frame
from flambeau.embeddings.attach import has_tables
from flambeau.embeddings.backend import LookupBackend
from flambeau.errors import ConfigError, DataError
from flambeau.inference.export import Base, ExportOptions, TrainedModel, write_export
from flambeau.inference.export_chain import open_chain
from flambeau.inference.export_description import (
    Bound,
    ExportDescription,
    Since,
    described_parameters,
    is_export,
)
from flambeau.inference.export_graph import EXAMPLE_ROWS
from flambeau.inference.exported_tables import ExportedTable
from flambeau.inference.given_rows import kind_of
from flambeau.inference.shorthands import expand
from flambeau.models.ctr.layers.in_batch import score_pairs_only
from flambeau.runs import open_data, open_model
from flambeau.runs.dry_run import runner
from flambeau.runs.number_inputs import suited
from flambeau.runs.trained_run import load_model, loss_names, open_given
from flambeau.tables.initializers import default_row
from flambeau.tables.saved.mapped import MappedTable, open_tables


def export_run(
    run: RunDirectory,
    settings: JobSettings,
    which: str,
    out: Path,
    options: ExportOptions | None = None,
    since: str | None = None,
    data: Any = None,
) -> ExportDescription:
    """Export a checkpoint to the folder `out`; return the export's description.

    `since` is another export, or a run: only changes since then are written. `data` has example
    rows, by default the run's training data.
    """
    if out.exists():
        raise ConfigError(f"out={out} exists already; choose another folder, or remove it")
    with lease(resolve(run, which)) as checkpoint:
        base = None if since is None else _base(since, out)
        trained = _trained(run, settings, checkpoint, data)
        return write_export(trained, out, options or ExportOptions(), base)


def open_run_tables(base: Path, since: Since) -> dict[str, MappedTable]:
    """Open the tables of the checkpoint that a delta is based on, if it is still the same."""
    assert since.checkpoint is not None
    checkpoint = resolve(RunDirectory(base), since.checkpoint)
    if _identity(checkpoint) != since.id:
        raise DataError(f"{checkpoint} has changed since the delta to it was written")
    return open_tables(checkpoint)


def _base(since: str, out: Path) -> Base:
    path = Path(since)
    if is_export(path):
        chain = open_chain(path, open_run_tables)
        where = os.path.relpath(path.resolve(), out.resolve())
        noted = Since(folder=where, id=chain.newest.id)
        return Base(since, noted, chain.tables(), chain.newest)
    reference, which = parse_reference(since)
    if not RunDirectory(reference).job_file.is_file():
        raise ConfigError(f"since={since} is neither an export nor a run")
    checkpoint = resolve(RunDirectory(reference), which)
    where = os.path.relpath(reference.resolve(), out.resolve())
    noted = Since(folder=where, id=_identity(checkpoint), checkpoint=checkpoint.name)
    tables = {
        name: ExportedTable(default_row(table.spec), [], table)
        for name, table in open_tables(checkpoint).items()
    }
    return Base(since, noted, tables, None)


def _identity(checkpoint: Path) -> str:
    return hashlib.sha256((checkpoint / MANIFEST).read_bytes()).hexdigest()[:32]


def describe_run(run: RunDirectory, settings: JobSettings, model: nn.Module) -> Bound:
    """Return the binding of a run's model, with details from its data if that still exists."""
    unbound = _unbound(settings)
    try:
        example = _Example.of(run, unbound, None)
        return _bound(run, unbound, model, example, example.binder(unbound, model))
    except (DataError, OSError):
        return Bound(
            binding=unbound.binding,
            forward=described_parameters(model.forward),
            columns={},
            features=settings.features,
            dtype=_dtype(model),
            images=settings.images,
            loss=loss_names(settings),
        )


def _trained(run: RunDirectory, settings: JobSettings, checkpoint: Path, data: Any) -> TrainedModel:
    model = load_model(run, settings, checkpoint.name)
    score_pairs_only(model)
    unbound = _unbound(settings)
    example = _Example.of(run, unbound, data)
    binder = example.binder(unbound, model)
    tables: dict[str, MappedTable] = {}
    backend: LookupBackend | None = None
    if has_tables(model):
        from flambeau.embeddings.saved import SavedTables

        tables, backend = open_tables(checkpoint), SavedTables(checkpoint)
    return TrainedModel(
        model=model,
        binder=binder,
        example=example.batch(binder),
        tables=tables,
        backend=backend,
        bound=_bound(run, unbound, model, example, binder),
        run=run.path.name,
        checkpoint=checkpoint.name,
        features=None if settings.features is None else run.code / open_data.FEATURES,
    )


def _unbound(settings: JobSettings) -> JobSettings:
    """Return the settings without labels and weights, which only training needs."""
    bare = settings.binding.model_copy(update={"label": None, "weight": None, "group": None})
    return settings.model_copy(update={"binding": bare})


def _bound(
    run: RunDirectory,
    settings: JobSettings,
    model: nn.Module,
    example: "_Example",
    binder: Binder,
) -> Bound:
    return Bound(
        binding=settings.binding,
        forward=described_parameters(model.forward),
        positional=example.shape.positional,
        columns={name: kind for name, kind in example.kinds(run, settings, binder).items() if kind},
        features=settings.features,
        dtype=_dtype(model),
        images=example.images,
        loss=loss_names(settings),
    )


def _dtype(model: nn.Module) -> str:
    return str(open_data.dtype_of(model)).removeprefix("torch.")


class _Example:
    """A few rows like those of the training: from a source, or blank if they were in memory."""

    def __init__(
        self, source: Source | None, arrays: ArrayData | None, settings: JobSettings
    ) -> None:
        self._source, self._arrays = source, arrays
        if source is not None:
            self.shape = open_data.shape_of(source)
            self.transform = open_data.image_transform(settings.images, source, train=False, seed=0)
        else:
            assert arrays is not None
            self.shape = Shape(tuple(arrays.columns), arrays.inputs, arrays.labels)
            self.transform = None
        self.images = (settings.images or Images()) if self.transform is not None else None

    @classmethod
    def of(cls, run: RunDirectory, settings: JobSettings, data: Any) -> "_Example":
        """Make an example from `data`, or else from the run's training data."""
        if data is not None:
            return cls(open_given(run, settings, data), None, settings)
        train = settings.train
        if isinstance(train, ArrayData) and not all(r.lasts for r in train.columns.values()):
            return cls(None, train, settings)
        schema = schema_of_frame(train) if isinstance(train, FrameData) else None
        if isinstance(train, SpooledData) and settings.features is not None:
            schema = open_data.fitted_pipeline(run).schema_
        if schema is not None:
            rows = blank_rows(schema, EXAMPLE_ROWS[0], gaps=True)
            return cls(
                open_data.attach_features(FrameSource(rows), run, settings, train), None, settings
            )
        try:
            source = open_data.open_data(train, open_model.code_loader(run))
        except DataError as error:
            raise DataError(
                f"the training data, of which an export needs a few rows, cannot be read: {error}. "
                "Give others like them with data= (on the command line --data)"
            ) from error
        return cls(open_data.attach_features(source, run, settings, train), None, settings)

    def binder(self, settings: JobSettings, model: Any) -> Binder:
        """Return the binder of the columns to the model."""
        if self._source is not None:
            binder = open_data.make_binder(settings, model, self._source, whole_batch=False)
        else:
            dtype = open_data.dtype_of(model)
            binder = Binder(settings.binding, model.forward, self.shape, dtype, expand=expand)
        return suited(runner(model, binder), binder, self._some_rows)

    def batch(self, binder: Binder) -> Batch:
        """Return the rows, assembled."""
        if self._source is None:
            return binder.assemble(self._zeros())
        found = next(iter(in_order(self._source, binder, EXAMPLE_ROWS[0])), None)
        if found is None:
            raise DataError("the data has no rows to take an example from")
        return found if self.transform is None else self.transform(found)

    def _some_rows(self, binder: Binder) -> Batch | None:
        """Return rows with the types of the data; for files and frames, blank ones."""
        if isinstance(self._source, StreamedSource | FrameSource):
            fields = [self._source.schema.field(name) for name in binder.columns]
            return binder.read(blank_rows(pa.schema(fields), rows=2))
        return None if isinstance(self._source, IterableSource) else self.batch(binder)

    def kinds(self, run: RunDirectory, settings: JobSettings, binder: Binder) -> dict[str, str]:
        """Return the kinds of columns as the model takes them: floats, integers or texts.

        With features, these are the raw columns, even if the training had prepared ones.
        """
        if settings.features is not None:
            return open_data.raw_kinds(run, self._source, binder)
        found = self._kinds(binder)
        floats = {name: found[name].replace("integers", "floats") for name in binder.numbers}
        return {**found, **floats}

    def _kinds(self, binder: Binder) -> dict[str, str]:
        if isinstance(self._source, StreamedSource | FrameSource):
            schema = self._source.schema
            return {name: kind_of(schema.field(name).type) for name in binder.columns}
        if isinstance(self._source, IndexedSource):
            rows = self._source.take(np.arange(1), binder.columns)
            return _kinds(as_columns(rows))
        return _kinds(self._zeros()) if self._arrays is not None else {}

    def _zeros(self) -> Batch:
        assert self._arrays is not None
        rows = EXAMPLE_ROWS[0]
        columns: dict[str, Any] = {
            name: torch.zeros((rows, *ref.shape[1:]), dtype=getattr(torch, ref.dtype))
            for name, ref in self._arrays.columns.items()
        }
        return Batch(columns, rows)


def _kinds(columns: Mapping[str, Any]) -> dict[str, str]:
    return {name: _kind(column) for name, column in columns.items()}


def _kind(column: Any) -> str:
    if isinstance(column, Jagged):
        return ""
    if isinstance(column, torch.Tensor):
        return "floats" if column.is_floating_point() else "integers"
    return "texts"
