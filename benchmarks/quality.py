"""The AUC of every recommender model on generated clicks, against the best that can be reached.

One line of JSON for each model: `auc` on rows that were not trained, the `best` that a model can
reach, the `gap` between them, and `closed`, the share of the distance between logistic regression
and the best that the model closes.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from measure import tell

import flambeau as fb
from flambeau.data.generated import generate_clicks
from flambeau.models import build
from flambeau.models.ctr import FIELD_MODELS

FIELDS, DENSE = 26, 13
BASELINE = "lr"
QUICK = ("lr", "fm", "deepfm")
VALID_SHARE = 0.1
#: Brings log2(1 + value), mostly 0 to 15, near 1.
OCTAVES = 8.0


@dataclass(frozen=True)
class Pace:
    """Learning rates and epochs; `embedding_rate` is for the embeddings alone."""

    rate: float = 1e-3
    table_rate: float = 0.05
    embedding_rate: float | None = None
    epochs: int = 1


#: Most models learn rows by heart after one epoch. Those of few parameters learn slowly and for
#: longer; AFM takes the mean over pairs, so its products have to become large.
PACES = {
    "lr": Pace(rate=1e-2, table_rate=0.02, epochs=4),
    "fm": Pace(rate=1e-2, table_rate=0.02, epochs=4),
    "ffm": Pace(rate=1e-2),
    "afm": Pace(rate=1e-2, embedding_rate=0.2),
}


def main() -> None:
    """Train them one after the other, the baseline first."""
    options = parse_options()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        best = make_data(directory, options.rows, options.ids)
        baseline = None
        for model in dict.fromkeys((BASELINE, *options.models)):
            auc = train(model, directory, options.epochs, options.batch_size)
            baseline = auc if baseline is None else baseline
            report(model, auc, best, baseline)


def report(model: str, auc: float, best: float, baseline: float) -> None:
    """One line."""
    distance = best - baseline
    closed = (auc - baseline) / distance if distance else 0.0
    tell(f"quality/{model}", auc=auc, best=best, gap=best - auc, closed=closed)


def make_data(directory: Path, rows: int, ids: int) -> float:
    """Write `train.parquet` and `valid.parquet`, of one day; gives the best AUC."""
    raw = directory / "raw"
    truth = generate_clicks(
        raw, rows=rows, ids=ids, days=1, fields=FIELDS, dense=DENSE, format="parquet"
    )
    clicks = prepared(pa.concat_tables(pq.read_table(path) for path in raw.glob("*.parquet")))
    held_out = int(len(clicks) * VALID_SHARE)
    pq.write_table(clicks.slice(held_out), directory / "train.parquet", row_group_size=50_000)
    pq.write_table(clicks.slice(0, held_out), directory / "valid.parquet")
    best = truth.overall["click"].auc
    assert best is not None, "clicks and other rows are both there"
    return best


def prepared(clicks: pa.Table) -> pa.Table:
    """Logarithms in the place of counts; a missing count is 0."""
    for column in (f"I{number}" for number in range(1, DENSE + 1)):
        counts = pc.max_element_wise(pc.fill_null(clicks[column], 0), 0)
        logs = pc.divide(pc.log2(pc.add(pc.cast(counts, pa.float32()), 1.0)), OCTAVES)
        place = clicks.schema.get_field_index(column)
        clicks = clicks.set_column(place, column, pc.cast(logs, pa.float32()))
    return clicks


def train(name: str, directory: Path, epochs: int | None, batch_size: int) -> float:
    """The AUC of a model after training by one worker with its tables in it."""
    pace = PACES.get(name, Pace())
    arguments: dict[str, Any] = {"fields": FIELDS, "dense": DENSE}
    if pace.embedding_rate is not None:
        own = fb.optim("adagrad", lr=pace.embedding_rate)
        arguments["table"] = {"embeddings": {"optimizer": own}}
    result = fb.fit(
        lambda: build(name, **arguments),
        str(directory / "train.parquet"),
        valid=str(directory / "valid.parquet"),
        inputs={"ids": fb.columns(f"C1:C{FIELDS}"), "dense": fb.columns(f"I1:I{DENSE}")},
        label="label",
        loss="bce",
        metrics=["auc"],
        optimizer=fb.optim("adam", lr=pace.rate),
        table_optimizer=fb.optim("adagrad", lr=pace.table_rate),
        batch_size=batch_size,
        epochs=epochs or pace.epochs,
        observe={"progress": "none"},
        run_dir=directory / "runs" / name,
    )
    return float(result.metrics["auc"])


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="names of models; all of them without")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--ids", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, help="as many for each model")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--quick", action="store_true", help="three models on a tenth of the rows")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.ids = options.rows // 10, options.ids // 10
    options.models = options.models or (QUICK if options.quick else tuple(FIELD_MODELS))
    return options


if __name__ == "__main__":
    main()
