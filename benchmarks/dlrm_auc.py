"""The AUC of DLRM on generated clicks: ours with two workers and a server, and the plain one."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from dlrm import BATCH_ROWS, BOTTOM, DENSE, DIM, FIELDS, TOP, WORKERS
from quality import make_data
from sides.torch_dlrm import PlainDLRM, batches, train_step
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import flambeau as fb
from flambeau.models import DLRM

RATE, TABLE_RATE = 1e-3, 0.05

Columns = dict[str, Tensor]


class Clicks:
    """Rows to train on and rows to test on; ids are numbered from 0 in each field."""

    def __init__(self, directory: Path, rows: int, ids: int) -> None:
        make_data(directory, rows, ids)
        parts = [pq.read_table(directory / f"{name}.parquet") for name in ("train", "valid")]
        numbered = [_numbered(pa.concat_tables(parts)[f"C{f + 1}"]) for f in range(FIELDS)]
        self.cardinalities = [int(field.max()) + 1 for field in numbered]
        of_fields = torch.from_numpy(np.stack(numbered, axis=1))
        at = len(parts[0])
        self.train = _columns(parts[0], of_fields[:at].clone())
        self.valid = _columns(parts[1], of_fields[at:].clone())
        self.base_rate = float(self.train["label"].mean())


def plain_aucs(clicks: Clicks, seeds: Sequence[int], processes: int) -> list[float]:
    """Those of the plain model, of which each has a thread of its own."""
    with torch.multiprocessing.get_context("spawn").Pool(processes) as pool:
        return pool.starmap(plain_auc, [(clicks, seed) for seed in seeds], chunksize=1)


def plain_auc(clicks: Clicks, seed: int) -> float:
    """One epoch of the plain model with one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = PlainDLRM(clicks.cardinalities, one_table=True)
    for layer in model.modules():
        if isinstance(layer, nn.Linear):  # as ours begin
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    nn.init.constant_(model.top[-1].bias, math.log(clicks.base_rate / (1 - clicks.base_rate)))
    parts = [
        torch.optim.Adam(model.dense_parameters(), lr=RATE),
        torch.optim.Adagrad(model.tables.parameters(), lr=TABLE_RATE),
    ]
    for batch in _epoch(clicks.train):
        train_step(model, parts, batch)
    with torch.no_grad():
        scores = model(clicks.valid["ids"], clicks.valid["dense"])
    return float(roc_auc_score(clicks.valid["label"].numpy(), scores.numpy()))


def our_auc(clicks: Clicks, seed: int, precision: str, directory: Path) -> float:
    """One epoch, so as many updates of as many rows, by workers that do not wait for each other."""
    result = fb.fit(
        lambda: DLRM(FIELDS, DENSE, DIM, BOTTOM, TOP, base_rate=clicks.base_rate),
        train=clicks.train,
        valid=clicks.valid,
        label="label",
        loss="bce",
        metrics=["auc"],
        optimizer=fb.optim("adam", lr=RATE),
        table_optimizer=fb.optim("adagrad", lr=TABLE_RATE),
        batch_size=BATCH_ROWS,
        seed=seed,
        compute={"precision": precision},
        strategy=fb.ParameterServer(consistency="asynchronous"),
        cluster=fb.Local(WORKERS),
        checkpoints=fb.Checkpoints(every_epochs=None),
        observe={"progress": "none"},
        run_dir=directory,
    )
    return float(result.metrics["auc"])


def _epoch(columns: Columns) -> Iterator[Columns]:
    steps = -(-len(columns["label"]) // BATCH_ROWS)
    for batch, _ in zip(batches(columns, steps), range(steps), strict=False):
        yield batch


def _numbered(ids: pa.ChunkedArray) -> np.ndarray:
    """The number of each id among the distinct ones; a missing one has a number of its own."""
    return ids.combine_chunks().dictionary_encode("encode").indices.to_numpy().astype(np.int64)


def _columns(table: pa.Table, ids: Tensor) -> Columns:
    numbers = [table[f"I{number + 1}"].to_numpy() for number in range(DENSE)]
    label = table["label"].to_numpy().astype(np.float32)
    dense = torch.from_numpy(np.stack(numbers, axis=1).astype(np.float32))
    return {"ids": ids, "dense": dense, "label": torch.from_numpy(label)}
