"""Finished runs for tests, written as a training would have left them, without one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.manifest import TableEntry
from flambeau.checkpoint.store import TrainingState, make_room, take_snapshot, write_snapshot
from flambeau.config import Binding, CodeRef, FileData, JobSettings
from flambeau.data.jagged import Jagged
from flambeau.embeddings import SparseEmbedding, TableSpec
from flambeau.embeddings.attach import tables_of
from flambeau.models import build
from flambeau.models.ctr.layers.fields import FieldEmbedding
from flambeau.tables.precision import narrow
from flambeau.tables.saved.chunk import Chunk
from flambeau.tables.saved.table_files import TableFileWriter, table_file_name

Rows = Mapping[str, tuple[np.ndarray, np.ndarray]]


class DeepFm(nn.Module):
    """Dense numbers and one id in each of three fields, in one table of fields."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rows = FieldEmbedding(3, 4, name="ids")
        self.deep = nn.Sequential(nn.Linear(2 + 12, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, dense: Tensor, ids: Any) -> Tensor:
        rows = self.rows(ids)
        pairs = (rows.sum(1) ** 2 - (rows**2).sum(1)).sum(1) / 2
        result: Tensor = self.deep(torch.cat([dense, rows.flatten(1)], 1)).squeeze(1) + pairs
        return result


class History(nn.Module):
    """An item and the items before it share a table; the history is pooled, and padded too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        items = TableSpec("item", 4)
        self.item, self.mean = SparseEmbedding(items), SparseEmbedding(items, "mean")
        self.each = SparseEmbedding(items)
        self.tasks = nn.ModuleDict({"click": nn.Linear(12, 1), "buy": nn.Linear(12, 1)})

    def forward(self, item: Tensor, history: Jagged) -> dict[str, Tensor]:
        rows, there = self.each(history)
        longest = (rows * there[..., None]).sum(1)
        both = torch.cat([self.item(item), self.mean(history), longest], 1)
        return {name: layer(both).squeeze(1) for name, layer in self.tasks.items()}


class Mlp(nn.Module):
    """No tables."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x)
        return result


class Shifted(nn.Module):
    """Computes ids itself."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = SparseEmbedding(TableSpec("ids", 4))

    def forward(self, item: Tensor) -> Tensor:
        result: Tensor = self.rows(item + 1).sum(1)
        return result


class OneId(nn.Module):
    """One id in each row, not pooled."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.rows, self.layer = SparseEmbedding(TableSpec("ids", 4)), nn.Linear(4, 1)

    def forward(self, item: Tensor) -> Tensor:
        result: Tensor = self.layer(self.rows(item)).squeeze(1)
        return result


BINDINGS: dict[str, Any] = {
    "DeepFm": {"inputs": {"dense": ["I1", "I2"], "ids": ["C1", "C2", "C3"]}, "keys": ["key"]},
    "History": {},
    "Mlp": {"inputs": {"x": ["I1", "I2"]}},
    "Shifted": {},
    "OneId": {},
}
LOSSES: dict[str, Any] = {
    "DeepFm": "bce",
    "History": {"click": "bce", "buy": "mse"},
    "Mlp": "cross_entropy",
    "Shifted": "mse",
    "OneId": "mse",
}


def clicks(rows: int = 40, seed: int = 0) -> pa.Table:
    """Columns for all models; C1 is text, and its texts are hashed."""
    rng = np.random.default_rng(seed)
    history = [rng.integers(0, 30, rng.integers(0, 4)).tolist() for _ in range(rows)]
    return pa.table(
        {
            "key": [f"k{number}" for number in range(rows)],
            "I1": rng.normal(size=rows),
            "I2": rng.normal(size=rows).astype(np.float32),
            "C1": [f"text{number}" for number in rng.integers(0, 9, rows)],
            "C2": rng.integers(0, 30, rows),
            "C3": rng.integers(-5, 5, rows),
            "item": rng.integers(0, 30, rows),
            "history": pa.array(history, pa.list_(pa.int64())),
            "label": rng.integers(0, 2, rows).astype(np.float32),
        }
    )


def write_run(folder: Path, name: str, rows: Rows | None = None) -> RunDirectory:
    """A run of one of the models; tables have `rows`, by default those of its data."""
    code = CodeRef(path=f"small_runs:{name}", call=True)
    settings = {"binding": Binding(**BINDINGS[name]), "loss": LOSSES[name]}
    return _write(folder, code, globals()[name](), settings, rows)


def write_zoo_run(folder: Path, name: str, arguments: dict[str, Any], **settings: Any) -> Any:
    """A run of a model of `flambeau.models`."""
    torch.manual_seed(0)
    code = CodeRef(path="flambeau.models:build", args={"name": name, **arguments}, call=True)
    return _write(folder, code, build(name, **arguments), settings, None)


def _write(
    folder: Path, code: CodeRef, model: nn.Module, settings: dict[str, Any], rows: Rows | None
) -> RunDirectory:
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "clicks.parquet"
    pq.write_table(clicks(), data, row_group_size=10)
    job = JobSettings(model=code, train=FileData(path=str(data)), **settings)
    run = RunDirectory(folder / "run")
    run.prepare(job.model_dump(mode="json"), "never")
    add_checkpoint(run, model, rows or {}, 1)
    return run


def add_checkpoint(run: RunDirectory, model: nn.Module, rows: Rows, step: int) -> Path:
    """One more checkpoint, with these rows."""
    directory = make_room(run, step)
    files, entries = {}, {}
    for spec in tables_of(model):
        ids, values = rows.get(spec.name) or some_rows(spec.dim)
        file = table_file_name(spec.name, 0)
        writer = TableFileWriter(directory / file, spec, len(ids), 0)
        state = np.empty((len(ids), 0), np.float32)
        writer.append(Chunk(ids, narrow(values, spec.dtype), state, None))
        files[file] = writer.finish()
        entries[spec.name] = TableEntry(spec=spec.model_dump(mode="json"), layers=[[file]])
    state = TrainingState(step=step, epoch=0, workers=1, model=model.state_dict())
    return write_snapshot(run, take_snapshot(state), lambda: (files, entries))


def some_rows(dim: int, seed: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the ids that the data has, as the tables know them, and of some others."""
    from flambeau.data.text_hash import hash_texts
    from flambeau.embeddings.fields import table_id

    table = clicks()
    texts = hash_texts(table["C1"].combine_chunks(), "C1").tolist()
    fields = [texts, table["C2"].to_pylist(), table["C3"].to_pylist()]
    found = {table_id(one, field) for field, ids in enumerate(fields) for one in ids}
    # One in four is not known, and reads as the default row.
    known = np.array(sorted(found | set(range(30))), np.int64)
    known = known[np.arange(len(known)) % 4 != 0]
    values = np.random.default_rng(seed).normal(size=(len(known), dim)).astype(np.float32)
    return known, values
