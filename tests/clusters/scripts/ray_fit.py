"""A program that trains on Ray: `python ray_fit.py FOLDER [dataset]`.

Prints where, the last step, and the sums of the weights; trains on arrays, or on a Ray Dataset.
"""

import json
import sys
from pathlib import Path

import ray
from ray_toys import Net, Slow, rows, uneven_dataset

import flambeau as fb

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    data = {"train": rows()}
    if "dataset" in sys.argv[2:]:
        data = {"train": uneven_dataset(), "inputs": {"x": list("abcd")}, "label": "y"}
    result = fb.fit(
        Net,
        **data,
        loss="cross_entropy",
        batch_size=16,
        epochs=3,
        cluster=fb.Ray(2),
        checkpoints={"every_steps": 5},
        observe={"progress": "none"},
        callbacks=[Slow(folder, begun_at=17)],
        run_dir=folder / "run",
    )
    found = {
        "nodes": [node["NodeManagerAddress"] for node in ray.nodes()],
        "step": result.report["step"],
        "repeated": result.report["rows"]["repeated"],
        "weights": [float(weight.double().sum()) for weight in result.model.parameters()],
    }
    print("FOUND", json.dumps(found))
