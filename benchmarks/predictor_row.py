"""Milliseconds of one row through `Predictor`, from raw columns of Criteo's logs."""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import tell
from readers import criteo_lines

import flambeau as fb
import flambeau.features as ft
from flambeau.inference.given_rows import as_records
from flambeau.inference.loaded_export import LoadedExport
from flambeau.models import DLRM

COLUMNS = [*fb.columns("I1:I13"), *fb.columns("C1:C26")]


def main() -> None:
    """The whole, and its parts, each measured on its own."""
    options = parse_options()
    torch.set_num_threads(1)
    rows, turns = (2_000, 50) if options.quick else (options.rows, options.turns)
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "day_0"
        log.write_text("".join(criteo_lines(np.random.default_rng(0), rows)))
        given = [row_of(line) for line in log.read_text().splitlines()[:turns]]
        for vocabulary in (False, True):
            export = exported(log, Path(name) / f"run-{vocabulary}", vocabulary=vocabulary)
            measure(export, given, "vocabulary" if vocabulary else "hashed")


def measure(export: Path, rows: list[dict[str, Any]], kind: str) -> None:
    """Print the median of one row, and those of its parts."""
    loaded = fb.Predictor.load(export)._served
    assert isinstance(loaded, LoadedExport)
    records = [as_records([row], loaded.description.columns) for row in rows]
    binder, scorer = loaded._bound(records[0].schema)
    assert binder._raw is not None
    made = [binder._raw(each) for each in records]
    batches = [binder.read(each) for each in records]
    whole = median(lambda row: loaded.predict([row]), rows)
    read = median(binder.read, records)
    features = median(binder._raw, records)
    tell(
        f"predictor_row/{kind}",
        ours=whole,
        arrow=median(lambda row: as_records([row], loaded.description.columns), rows),
        features=features,
        binding=read - features,
        model=median(lambda batch: scorer.score(batch, binder), batches),
        unit="ms",
        rows=len(made),
    )


def median(work: Callable[[Any], Any], given: list[Any]) -> float:
    """Return the median of the milliseconds that `work` takes for one of `given`."""
    found = []
    for each in [*given[:20], *given]:
        started = time.perf_counter()
        work(each)
        found.append((time.perf_counter() - started) * 1e3)
    return statistics.median(found[20:])


def exported(log: Path, run: Path, *, vocabulary: bool) -> Path:
    """An export of a short training."""
    result = fb.fit(
        DLRM(),
        str(log),
        features=ft.criteo(vocabulary=vocabulary),
        inputs={"ids": "C1:C26", "dense": "I1:I13"},
        label="label",
        loss="bce",
        max_steps=4,
        batch_size=512,
        strategy=fb.Hybrid(),
        observe={"progress": "none"},
        run_dir=run,
    )
    return result.export(run / "export")


def row_of(line: str) -> dict[str, Any]:
    """A line of a log as an application has it."""
    cells = line.split("\t")[1:]
    numbers = [int(cell) if cell else None for cell in cells[:13]]
    return dict(zip(COLUMNS, [*numbers, *cells[13:]], strict=True))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=1000, help="rows that are predicted")
    parser.add_argument("--quick", action="store_true", help="just see that it runs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
