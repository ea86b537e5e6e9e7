"""A program that trains on Ray: `python ray_fit.py FOLDER`. Prints where, and the last step."""

import json
import sys
from pathlib import Path

import ray
from ray_toys import Net, Slow, rows

import flambeau as fb

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    result = fb.fit(
        Net,
        rows(),
        loss="cross_entropy",
        batch_size=16,
        epochs=3,
        cluster=fb.Ray(2),
        checkpoints={"every_steps": 5},
        observe={"progress": "none"},
        callbacks=[Slow(folder)],
        run_dir=folder / "run",
    )
    where = [node["NodeManagerAddress"] for node in ray.nodes()]
    print("FOUND", json.dumps({"nodes": where, "step": result.report["step"]}))
