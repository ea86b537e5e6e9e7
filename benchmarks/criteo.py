"""`flambeau criteo` on generated logs, and the AUC of a plain torch DLRM on the same features."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from dlrm import DENSE, FIELDS
from measure import tell
from sides.torch_dlrm import PlainDLRM, train_step
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from flambeau.data.generated import generate_clicks

#: Both sides: rows of an update, and the rates of numbers and tables.
BATCH_ROWS, RATE, TABLE_RATE = 4096, 1e-3, 0.02
DAYS, MIN_COUNT = 7, 2


def main() -> None:
    """Time each stage of the command, then train the plain model for as many updates."""
    options = parse_options()
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        folder = Path(name)
        generate_clicks(folder / "logs", rows=options.rows, ids=options.ids, days=DAYS)
        records = ours(folder, options.overrides)
        for stage, found in records.items():
            seconds, rows = found["seconds"], found["rows"]
            memory = (found["memory"] or 0) / 2**20
            tell(
                f"criteo/{stage}",
                seconds=seconds,
                rows=rows,
                rows_per_second=rows / seconds,
                peak_mb=memory,
            )
        mine = records["evaluate"]["metrics"]["auc"]
        peers = [plain_auc(folder / "out" / "features", seed) for seed in range(options.seeds)]
        peer = float(np.mean(peers))
        tell("criteo/auc", ours=mine, peer=peer, difference=mine - peer, all_peer=peers)


def ours(folder: Path, overrides: list[str]) -> dict[str, Any]:
    """Return what the command records of each stage."""
    command = [sys.executable, "-m", "flambeau", "criteo", str(folder / "logs"), "--mode", "small"]
    days = ["--train-days", f"0-{DAYS - 2}", "--test-day", str(DAYS - 1)]
    out = folder / "out"
    rates = [f"optimizer.lr={RATE}", f"table_optimizer.lr={TABLE_RATE}"]
    options = [*days, "--out", str(out), "--min-count", str(MIN_COUNT), "--workers", "2"]
    subprocess.run(
        [*command, *options, f"batch_size={BATCH_ROWS // 2}", *rates, *overrides],
        check=True,
        stdout=sys.stderr,
    )
    found: dict[str, Any] = json.loads((out / "criteo.json").read_text())["prepared"]
    return found


def plain_auc(features: Path, seed: int) -> float:
    """Train the plain model with all cores for an epoch; return its AUC on the test rows."""
    torch.manual_seed(seed)
    sizes = json.loads((features / "preparation.json").read_text())["sizes"]
    model = PlainDLRM(list(sizes.values()), one_table=True)
    for layer in model.modules():
        if isinstance(layer, nn.Linear):  # as ours begin
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    parts: list[torch.optim.Optimizer] = [
        torch.optim.Adam(model.dense_parameters(), lr=RATE),
        torch.optim.Adagrad(model.tables.parameters(), lr=TABLE_RATE),
    ]
    train = columns(features / "train")
    order = torch.randperm(len(train["label"]))
    for rows in order.split(BATCH_ROWS):
        train_step(model, parts, {name: column[rows] for name, column in train.items()})
    test = columns(features / "test")
    with torch.no_grad():
        parts_of = zip(test["ids"].split(1 << 16), test["dense"].split(1 << 16), strict=True)
        scores = torch.cat([model(ids, dense) for ids, dense in parts_of])
    return float(roc_auc_score(test["label"].numpy(), scores.numpy()))


def columns(folder: Path) -> dict[str, Tensor]:
    """Return the features of a subset."""
    table = pq.read_table(folder)
    ids = [table[f"C{number + 1}"].to_numpy() for number in range(FIELDS)]
    dense = [table[f"I{number + 1}"].to_numpy() for number in range(DENSE)]
    return {
        "ids": torch.from_numpy(np.stack(ids, axis=1).astype(np.int64)),
        "dense": torch.from_numpy(np.stack(dense, axis=1).astype(np.float32)),
        "label": torch.from_numpy(table["label"].to_numpy().astype(np.float32)),
    }


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--ids", type=int, default=20_000, help="that repeat often enough to learn")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--dir", default=os.environ.get("TMPDIR"), help="where files go meanwhile")
    parser.add_argument("overrides", nargs="*", help="settings of our training: key=value")
    return parser.parse_args()


if __name__ == "__main__":
    main()
