"""Trains for long on hosts: `python ssh_fit.py FOLDER SETTINGS`."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ray_toys import Net, Slow, rows

import flambeau as fb

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    fb.fit(
        Net,
        rows(),
        loss="cross_entropy",
        epochs=1000,
        cluster=fb.Ssh(**json.loads(sys.argv[2])),
        callbacks=[Slow(folder)],
        observe={"progress": "none"},
        run_dir=folder / "run",
    )
