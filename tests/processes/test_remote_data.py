"""Jobs whose files are on a web server."""

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

JOB = """
model: nets:Net
train: {url}/train/*.parquet
valid: {url}/valid.parquet?signature=secret
label: y
loss: mse
optimizer: {{name: sgd, lr: 1e-2}}
batch_size: 32
cluster: {{local: {{workers: 2}}}}
observe: {{tensorboard: false}}
"""

NETS = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, a, b):
        return self.layer(torch.stack([a, b], dim=1).float()).squeeze(1)
"""


def table(rows: int) -> pa.Table:
    a, b = np.random.default_rng(0).normal(size=(2, rows))
    return pa.table({"a": a, "b": b, "y": a + b})


def parquet(rows: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table(rows), sink, row_group_size=50)
    return sink.getvalue()


def csv(rows: int) -> bytes:
    columns = table(rows).to_pydict()
    lines = zip(columns["a"], columns["b"], strict=True)
    return gzip.compress(b"a,b\n" + b"".join(b"%f,%f\n" % line for line in lines))


def flambeau(work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "flambeau", *arguments]
    return subprocess.run(program, cwd=work, capture_output=True, text=True, timeout=120)


def test_workers_train_from_a_web_server_and_predict_for_it(
    tmp_path: Path, file_server: Any
) -> None:
    url = file_server.url
    file_server.files |= {
        "train/0.parquet": parquet(150),
        "train/1.parquet": parquet(100),
        "valid.parquet": parquet(60),
        "new.csv.gz": csv(40),
    }
    (tmp_path / "nets.py").write_text(NETS)
    (tmp_path / "job.yaml").write_text(JOB.format(url=url))

    trained = flambeau(tmp_path, "train", "job.yaml")
    assert trained.returncode == 0, trained.stdout + trained.stderr
    report = json.loads((tmp_path / "runs/job/report.json").read_text())
    assert report["rows"]["read"] == 250

    predicted = flambeau(tmp_path, "predict", "runs/job", f"{url}/new.csv.gz", "--out", "s.parquet")
    assert predicted.stdout.startswith("40 rows written to s.parquet, "), predicted.stderr

    file_server.broken.add("valid.parquet")
    failed = flambeau(tmp_path, "evaluate", "runs/job")
    assert failed.returncode != 0
    assert f"{url}/valid.parquet?... cannot be read" in failed.stderr
    assert "secret" not in trained.stdout + trained.stderr + failed.stdout + failed.stderr
