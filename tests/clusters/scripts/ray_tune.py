"""Two trials of Tune at once, which train on Ray: `python ray_tune.py FOLDER`.

Each trial reserves two cores: one for itself, and one for its worker. Prints what they report.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from ray import tune

import flambeau as fb


class Line(torch.nn.Module):
    """Not importable elsewhere, as the classes of a notebook are not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x)
        return result


def train(config: dict[str, Any]) -> None:
    began = time.time()
    x = np.random.default_rng(0).normal(size=(200, 2)).astype("float32")
    data = (x, (x[:, 0] > 0).astype("int64"))
    result = fb.fit(
        Line,
        data,
        valid=data,
        loss="cross_entropy",
        optimizer=fb.optim("adam", lr=config["lr"]),
        metrics=["accuracy"],
        batch_size=20,
        epochs=5,
        cluster=fb.Ray(1),
        observe={"progress": "none"},
    )
    accuracy = result.metrics["accuracy"]
    tune.report({"accuracy": accuracy, "began": began, "ended": time.time()})


if __name__ == "__main__":
    ray.init(log_to_driver=False)
    resources = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])
    tuner = tune.Tuner(
        tune.with_resources(train, resources),
        param_space={"lr": tune.grid_search([0.00001, 0.1])},
        run_config=tune.RunConfig(storage_path=str(Path(sys.argv[1]) / "tune"), verbose=0),
    )
    names = ("accuracy", "began", "ended")
    found = [{name: trial.metrics[name] for name in names} for trial in tuner.fit()]
    print("FOUND", json.dumps(found))
