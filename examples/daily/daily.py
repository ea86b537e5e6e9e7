"""Seven days of clicks: every day tested before it is trained on, and the news sent to who serves.

python examples/daily/daily.py --out daily          # about a minute; generates the clicks too
"""

import argparse
from pathlib import Path
from typing import Any

import flambeau as fb
from flambeau.config import FileData
from flambeau.data.generated import generate_clicks
from flambeau.embeddings import MinCount, TimeToLive
from flambeau.models import DeepFM

BATCH = 256


def build(rows_a_day: int) -> DeepFM:
    """A row for ids that come twice; it leaves when it was not trained for three days."""
    three_days = 3 * rows_a_day // BATCH
    table = {
        "admission": MinCount(2),
        "eviction": TimeToLive(steps=three_days),
        "initializer": {"kind": "uniform", "scale": 0.01},
    }
    return DeepFM(embedding_dim=8, hidden=(64, 32), table=table)


def train(day: Path, run_dir: Path, rows_a_day: int, yesterday: Path | None) -> fb.Result:
    """Go on from yesterday's weights, rows, optimizer state and counts, with today's clicks."""
    return fb.fit(
        build(rows_a_day),
        train=FileData(path=str(day), format="criteo"),
        inputs={"ids": fb.columns("C1:C26"), "dense": fb.columns("I1:I13")},
        label="label",
        loss="bce",
        metrics=["auc", "logloss"],
        optimizer=fb.optim("adam", lr=1e-3),
        table_optimizer=fb.optim("adagrad", lr=0.05),
        batch_size=BATCH,
        strategy=fb.ParameterServer(consistency="asynchronous"),
        observe={"progress": "none"},
        init_from=yesterday,
        run_dir=run_dir,
    )


def main(out: Path, rows: int, ids: int, days: int) -> list[dict[str, Any]]:
    """What was measured, by day."""
    truth = generate_clicks(out / "clicks", rows=rows, ids=ids, days=days)
    found: list[dict[str, Any]] = []
    result: fb.Result | None = None
    predictor: fb.Predictor | None = None
    for number in range(days):
        day = out / "clicks" / f"day_{number}.tsv"
        run_dir, export = out / "runs" / f"day-{number}", out / "exports" / f"day-{number}"
        best = truth.by_day[number]["click"].auc
        seen: dict[str, Any] = {"day": number, "best": best}
        if result is not None:
            seen |= result.evaluate(FileData(path=str(day), format="criteo"))
        yesterday = None if result is None else result.run_dir
        result = train(day, run_dir, rows // days, yesterday)
        since = None if predictor is None else out / "exports" / f"day-{number - 1}"
        result.export(export, since=since)
        if predictor is None:
            predictor = fb.Predictor.load(out / "exports")
        else:
            seen["refreshed"] = predictor.refresh()
        tables = next(iter(result.report["servers"].values()))["tables"]
        seen |= {"table": tables["embeddings"], "export_bytes": size_of(export)}
        found.append(seen)
        show(seen)
    return found


def size_of(folder: Path) -> int:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def show(seen: dict[str, Any]) -> None:
    """One line for a day."""
    tested = f"AUC {seen['auc']:.4f}" if "auc" in seen else "not tested"
    table = seen["table"]
    print(
        f"day {seen['day']}: {tested} (best {seen['best']:.4f}); {table['rows']:,} rows, "
        f"{table['rejected']:,} turned away, {table['evicted']:,} left; "
        f"{seen['export_bytes'] / 1e6:.2f} MB exported"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("daily"), help="a new folder")
    parser.add_argument("--rows", type=int, default=210_000)
    parser.add_argument("--ids", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=7)
    options = parser.parse_args()
    main(options.out, options.rows, options.ids, options.days)
