"""Predictions into a folder against a bare loop over the same reader and model, in one process."""

import argparse
import itertools
import shutil
import tempfile
import time
from pathlib import Path

import loader
import measure
import torch
from torch import Tensor, nn

import flambeau as fb
from flambeau.checkpoint import RunDirectory
from flambeau.data.loader import in_order
from flambeau.driver.parts.predict import predict_run
from flambeau.models.ctr.layers.fields import FieldEmbedding
from flambeau.runs import open_data
from flambeau.runs.prediction import PredictionOptions
from flambeau.runs.trained_run import load_model, open_given, read_settings

BATCH = 2048


class Clicks(nn.Module):
    """An MLP over 13 numbers and 26 looked-up ids."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = FieldEmbedding(26, 16, name="ids")
        sizes = (13 + 26 * 16, 256, 64, 1)
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        whole = torch.cat([dense, self.rows(ids).flatten(1)], 1)
        result: Tensor = self.layers(whole).squeeze(1)
        return result


def main() -> None:
    options = parse_options()
    rows, pairs = (100_000, 2) if options.quick else (options.rows, options.pairs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = str(loader.write(folder, rows))
        run = train(folder, data)
        settings = read_settings(run)

        def ours() -> float:
            shutil.rmtree(folder / "scores", ignore_errors=True)
            started = time.perf_counter()
            given = PredictionOptions(workers=1, batch_size=BATCH)
            predict_run(run, settings, "latest", data, folder / "scores", given)
            return rows / (time.perf_counter() - started)

        def bare() -> float:
            started = time.perf_counter()
            model, source = load_model(run, settings, "latest"), open_given(run, settings, data)
            binder = open_data.make_binder(settings, model, source, whole_batch=False)
            for batch in in_order(source, binder, BATCH):
                positional, named = binder.arguments(batch)
                with torch.inference_mode():
                    model(*positional, **named)
            return rows / (time.perf_counter() - started)

        ours(), bare()
        measure.report("predict", measure.interleave(ours, bare, pairs), "rows/s", rows=rows)


def train(folder: Path, data: str) -> RunDirectory:
    """A short training, for tables with rows in them."""
    result = fb.fit(
        Clicks(),
        data,
        label="label",
        inputs={"dense": fb.columns("I1:I13"), "ids": fb.columns("C1:C26")},
        loss="bce",
        table_optimizer=fb.optim("adagrad", lr=0.05),
        batch_size=BATCH,
        max_steps=20,
        observe={"progress": "none"},
        run_dir=str(folder / "run"),
    )
    return RunDirectory(result.run_dir)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="just see that it runs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
