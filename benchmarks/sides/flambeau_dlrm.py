"""Our side of the recommender benchmark: two workers, tables on a server.

flambeau_dlrm.py PRECISION ROWS DIRECTORY
ROWS is 0, or how many rows the table has from the start, with ids all over them.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from dlrm import BATCH_ROWS, BOTTOM, DENSE, DIM, FIELDS, LEARNING_RATE, TIMED, TOP, WARM, WORKERS
from dlrm import clicks as zipf_clicks
from flambeau_async import EPOCHS, TakeTurns
from torch import Tensor

import flambeau as fb
from flambeau.embeddings.fields import field_ids
from flambeau.models import DLRM

CHUNK = 1_000_000


def build(init: str | None = None) -> DLRM:
    """The model at the peer's shape."""
    table = {"init": init} if init is not None else {}
    return DLRM(fields=FIELDS, dense=DENSE, embedding_dim=DIM, bottom=BOTTOM, top=TOP, table=table)


def full_table(rows: int, path: Path) -> None:
    """A file with a row for each of `rows` ids, the same number in every field."""
    kind = pa.schema([("id", pa.int64()), ("vector", pa.list_(pa.float32(), DIM))])
    with pq.ParquetWriter(path, kind, compression="zstd") as writer:
        for first in range(0, rows // FIELDS, CHUNK):
            numbers = torch.arange(first, min(first + CHUNK, rows // FIELDS))
            ids = field_ids(numbers[:, None].expand(-1, FIELDS).contiguous(), FIELDS).numpy()
            values = pa.array(np.zeros(ids.size * DIM, np.float32))
            vectors = pa.FixedSizeListArray.from_arrays(values, DIM)
            writer.write_batch(pa.record_batch([pa.array(ids), vectors], schema=kind))


def spread_clicks(rows: int) -> dict[str, Tensor]:
    """Clicks whose ids are all over the table, none more frequent than others."""
    columns = zipf_clicks()
    generator = torch.Generator().manual_seed(0)
    columns["ids"] = torch.randint(rows // FIELDS, columns["ids"].shape, generator=generator)
    return columns


def main(precision: str, rows: int, directory: Path) -> None:
    init = None
    if rows:
        init = str(directory / "vectors.parquet")
        full_table(rows, Path(init))
    fb.fit(
        lambda: build(init),
        train=spread_clicks(rows) if rows else zipf_clicks(),
        label="label",
        loss="bce",
        optimizer=fb.optim("sgd", lr=LEARNING_RATE),
        table_optimizer=fb.optim("sgd", lr=LEARNING_RATE),
        batch_size=BATCH_ROWS,
        epochs=EPOCHS,
        loading={"drop_last": True},
        compute={"precision": precision},
        strategy=fb.ParameterServer(consistency="asynchronous"),
        # The peer does neither.
        checkpoints=fb.Checkpoints(every_epochs=None),
        evaluation={"every_epochs": None},
        observe={"progress": "none"},
        # Waiting for its turn is not a sign of trouble.
        recovery={"heartbeat_timeout": 600},
        callbacks=[TakeTurns(directory, WARM, TIMED)],
        cluster=fb.Local(WORKERS),
        run_dir=directory / "run",
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
