"""Exports with smaller tables rank as well as the model does."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.metrics import roc_auc_score
from toy import QUIET

import flambeau as fb
from flambeau.data.generated import generate_clicks
from flambeau.models import DeepFM

FIELDS = 8


def auc(folder: Path, rows: pa.Table) -> float:
    scores = fb.Predictor.load(folder).predict(rows)["probability"]
    return float(roc_auc_score(rows["label"].to_numpy(), scores.to_numpy()))


def test_int8_tables_cost_next_to_no_auc_on_rows_that_were_not_trained(tmp_path: Path) -> None:
    data = tmp_path / "clicks"
    generate_clicks(data, rows=60_000, fields=FIELDS, dense=0, ids=400, days=2, format="parquet")
    result = fb.fit(
        DeepFM(fields=FIELDS, dense=0, embedding_dim=8, hidden=(16,)),
        str(data / "day_0.parquet"),
        inputs={"ids": fb.columns(f"C1:C{FIELDS}")},
        label="label",
        loss="bce",
        table_optimizer=fb.optim("adagrad", lr=0.1),
        batch_size=256,
        epochs=2,
        observe=QUIET,
        run_dir=tmp_path / "run",
    )
    held_out = pq.read_table(data / "day_1.parquet")
    full = auc(result.export(tmp_path / "full"), held_out)
    small = auc(result.export(tmp_path / "small", tables="int8"), held_out)
    assert full > 0.65
    assert 0.0 < abs(full - small) < 0.002
