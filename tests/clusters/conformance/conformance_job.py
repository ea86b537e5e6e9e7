"""A program that every cluster runs: `python conformance_job.py CLUSTER SCENARIOS FOLDER WORKERS`.

Under a launcher, all of its processes run it. Each prints what it found as a line of JSON. An error
ends it, unless there are several scenarios.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from torch import nn

import flambeau as fb
from flambeau.embeddings import SparseEmbedding, TableSpec
from flambeau.errors import FlambeauError
from flambeau.training.callbacks import Callback, TrainingView

STRATEGIES = {
    "all_reduce": fb.AllReduce(),
    "synchronous": fb.ParameterServer(consistency="synchronous"),
    "bounded": fb.ParameterServer(consistency="bounded"),
    "asynchronous": fb.ParameterServer(consistency="asynchronous"),
}
CRITEO_ROWS, CRITEO_IDS = 100_000, 2_000
COLUMNS = {"inputs": {"x": ["a", "b", "c", "d"]}, "label": "y"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


class TableNet(Net):
    """A model with a table, which `Hybrid` is for."""

    def __init__(self) -> None:
        super().__init__()
        self.users = SparseEmbedding(TableSpec("users", dim=4))

    def forward(self, x: torch.Tensor, user: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x + self.users(user))
        return result


class Strike(Callback):
    """Does something to worker 1 after its third step, once in a run directory."""

    def __init__(self, how: str) -> None:
        self.how = how

    def on_step_end(self, view: TrainingView) -> None:
        mark = Path(view.run_dir) / "struck"
        if view.rank != 1 or view.step != 3 or mark.exists():
            return
        mark.touch()
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("struck on purpose")


class Slow(Callback):
    """Makes steps long enough to be interrupted, and says in a file that training has begun."""

    def on_step_end(self, view: TrainingView) -> None:
        time.sleep(0.05)
        if view.step >= 3 and view.first:
            Path(view.run_dir).joinpath("begun").touch()


def rows(count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 4)).astype("float32")
    return x, (x[:, 0] + x[:, 1] > 0).astype("int64")


def table() -> pa.Table:
    x, y = rows()
    return pa.table({**{name: x[:, i] for i, name in enumerate("abcd")}, "y": y})


def fit(cluster: Any, run_dir: Path, data: Any = None, **more: Any) -> fb.Result:
    given = rows() if data is None else data
    return fb.fit(
        more.pop("model", Net),
        given,
        loss="cross_entropy",
        metrics=["accuracy"],
        optimizer=fb.optim("adam", lr=0.02),
        cluster=cluster,
        observe={"progress": "none"},
        run_dir=run_dir,
        **{"epochs": 2, "batch_size": 16, **more},
    )


def trains(cluster: Any, folder: Path) -> dict[str, Any]:
    """Every strategy, and data of every kind that is not an engine's own."""
    found: dict[str, Any] = {}
    for name, strategy in STRATEGIES.items():
        result = fit(cluster, folder / name, valid=rows(), strategy=strategy)
        found[name] = [result.metrics["accuracy"], result.report["rows"]["applied"]]
    frame = table().to_pandas()
    result = fit(cluster, folder / "pandas", frame, valid=frame, **COLUMNS)
    found["pandas"] = [result.metrics["accuracy"], result.report["rows"]["applied"]]
    x, y = rows()
    columns = {"x": x, "user": np.arange(len(x)) % 50, "y": y}
    result = fit(
        cluster,
        folder / "hybrid",
        columns,
        valid=columns,
        model=TableNet,
        inputs={"x": "x", "user": "user"},
        label="y",
        strategy=fb.Hybrid(),
    )
    found["hybrid"] = [result.metrics["accuracy"], result.report["rows"]["applied"]]
    return found


def finds_others(cluster: Any, folder: Path) -> dict[str, Any]:
    """Two jobs, in whatever processes there are."""
    data = rows() if is_first() else 0  # what others have does not count
    first = fit(cluster, folder / "first", data, valid=data)
    second = fit(cluster, folder / "second", strategy=STRATEGIES["asynchronous"])
    workers = [each.report["workers"] for each in (first, second)]
    return {"workers": workers, "accuracy": first.metrics["accuracy"]}


def uses(cluster: Any, folder: Path) -> dict[str, Any]:
    """Files, and what is done with a run: evaluating, predicting, resuming, `fb.run`."""
    path = folder / "rows.parquet"
    if not path.exists() and is_first():
        pyarrow.parquet.write_table(table(), path)
    fb.run(time.time, cluster=cluster)  # which ends after the file was written
    first = fit(cluster, folder / "files", str(path), valid=str(path), **COLUMNS)
    more = fit(cluster, folder / "files", str(path), valid=str(path), epochs=3, **COLUMNS)
    out = folder / "scores"
    return {
        "steps": [first.report["step"], more.report["step"]],
        "workers": more.report["workers"],
        "accuracy": more.metrics["accuracy"],
        "evaluated": more.evaluate(str(path), cluster=cluster)["accuracy"],
        "predicted": more.predict(str(path), out, cluster=cluster, batch_size=64),
        "table": more.predict(table().slice(0, 8), cluster=cluster).num_rows,
        "ranks": fb.run(rank_and_world, cluster=cluster),
    }


def rank_and_world() -> tuple[int, int, float]:
    total = torch.ones(1)
    torch.distributed.all_reduce(total)
    return (torch.distributed.get_rank(), torch.distributed.get_world_size(), total.item())


def is_first() -> bool:
    names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
    return next((os.environ[name] for name in names if name in os.environ), "0") == "0"


def frames(cluster: Any, folder: Path) -> dict[str, Any]:
    """A data frame of the cluster's own engine."""
    frame = ray_dataset() if isinstance(cluster, fb.Ray) else spark_frame()
    result = fit(cluster, folder / "frame", frame, **COLUMNS)
    return {"applied": result.report["rows"]["applied"]}


def spark_frame() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession().createDataFrame(table().to_pandas())


def ray_dataset() -> Any:
    """A dataset with uneven blocks, one of them empty."""
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    whole = table()
    return ray.data.from_arrow([whole.slice(0, 310), whole.slice(0, 0), whole.slice(310)])


def loses_worker(cluster: Any, folder: Path) -> dict[str, Any]:
    more = {"checkpoints": {"every_steps": 2}, "recovery": {"max_restarts": 1}}
    result = fit(cluster, folder / "run", callbacks=[Strike("kill")], **more)
    return {"restarts": result.report["restarts"], "status": result.report["status"]}


def raises(cluster: Any, folder: Path) -> dict[str, Any]:
    fit(cluster, folder / "run", callbacks=[Strike("raise")])
    return {}


def mistaken(cluster: Any, folder: Path) -> dict[str, Any]:
    fit(cluster, folder / "run", batch_size=0)
    return {}


def lasts(cluster: Any, folder: Path) -> dict[str, Any]:
    result = fit(cluster, folder / "run", epochs=50, callbacks=[Slow()])
    return {"status": result.report["status"]}


def resumes(cluster: Any, folder: Path) -> dict[str, Any]:
    steps = int(os.environ["STEPS"])
    run = Path(os.environ["RUN_DIR"])
    result = fit(cluster, run, epochs=50, max_steps=steps, callbacks=[Slow()])
    return {"workers": result.report["workers"], "step": result.report["step"]}


def criteo(cluster: Any, folder: Path) -> dict[str, Any]:
    """The whole of `flambeau criteo`, with logs that all processes have the same of."""
    from flambeau.cli.criteo.command import ModeName, criteo
    from flambeau.cli.given import ClusterName
    from flambeau.data.generated import generate_clicks

    if is_first():
        generate_clicks(folder / "logs", rows=CRITEO_ROWS, ids=CRITEO_IDS)
    fb.run(time.time, cluster=cluster)  # which ends after the files were written
    kind = sys.argv[1]
    tiny = ["args.embedding_dim=4", "args.bottom=[8]", "args.top=[8]", "batch_size=1024"]
    tiny += ["args.dense_below=1"]  # all fields are in the table, which learns sooner
    criteo(
        str(folder / "logs"),
        [*tiny, "observe.progress=none"],
        mode=ModeName.SMALL,
        test_day=6,
        out=folder / "out",
        min_count=2,
        cluster=None if kind == "any" else ClusterName(kind),
        workers=None if kind in ("any", "attached") else cluster.workers,
    )
    fb.run(time.time, cluster=cluster)  # which ends after the first process has written all
    records = json.loads((folder / "out" / "criteo.json").read_text())["prepared"]
    return {
        "pipeline": json.loads((folder / "out/features/prepared.json").read_text())["pipeline"],
        "rows": {name: record["rows"] for name, record in records.items()},
        "done": all(record["done"] for record in records.values()),
        "learned": records["evaluate"]["metrics"]["auc"] > 0.55,
    }


def open_cluster(kind: str, workers: int) -> Any:
    if kind == "attached":
        return fb.Attached()
    if kind == "any":
        return None  # found out
    if kind == "local":
        return fb.Local(workers)
    if kind == "ray":
        return fb.Ray(workers)
    if kind == "ssh":
        return fb.Ssh(workers=workers)
    from pyspark.sql import SparkSession

    SparkSession.builder.master(f"local[{workers}]").getOrCreate()
    return fb.Spark(workers)


SCENARIOS = (
    finds_others,
    trains,
    uses,
    frames,
    loses_worker,
    raises,
    mistaken,
    lasts,
    resumes,
    criteo,
)


def play(name: str, cluster: Any, folder: Path) -> None:
    """Play a scenario, and print what came out of it."""
    (scenario,) = (each for each in SCENARIOS if each.__name__ == name)
    (folder / name).mkdir(exist_ok=True)
    say({name: scenario(cluster, folder / name)})


def say(found: dict[str, Any]) -> None:
    """Print a line in one piece: processes of a launcher may share what they print to."""
    sys.stdout.write(f"FOUND {json.dumps(found)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    kind, names, folder = sys.argv[1:4]
    cluster = open_cluster(kind, int(sys.argv[4]))
    several = names.split(",")
    for name in several:
        try:
            play(name, cluster, Path(folder))
        except FlambeauError as error:
            if len(several) == 1:
                raise
            found = {"error": type(error).__name__, "text": str(error)}
            say({name: found})
