"""N workers learn what one with the N-fold batch learns; a resumed run what a whole one does."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset
from toy import QUIET, DropoutNet, Net, Strike, assert_same_weights, make_data, weights

import flambeau as fb
from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.references import checkpoint_path
from flambeau.checkpoint.store import read_checkpoint
from flambeau.errors import WorkerLostError

SGD = fb.optim("sgd", lr=0.1, momentum=0.9)
ADAMW = fb.optim("adamw", lr=0.01, weight_decay=0.1)
LAMB = fb.optim("lamb", lr=0.05, weight_decay=0.1)


def fit(model: Any, run_dir: Path, **changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "train": make_data(),
        "loss": "cross_entropy",
        "optimizer": SGD,
        "epochs": 3,
        "observe": QUIET,
        "run_dir": run_dir,
        **changes,
    }
    return fb.fit(model, **arguments)


@pytest.mark.parametrize("optimizer", [SGD, ADAMW, LAMB], ids=["momentum", "adamw", "lamb"])
def test_three_workers_equal_one_with_the_threefold_batch(tmp_path: Path, optimizer: Any) -> None:
    # 101 rows: the last step has 5 rows, so two workers have 2 and one has 1.
    many = fit(Net(), tmp_path / "many", cluster=fb.Local(3), batch_size=8, optimizer=optimizer)
    one = fit(Net(), tmp_path / "one", batch_size=24, optimizer=optimizer)
    assert_same_weights(many, one)
    assert many.report["rows"] == {
        "read": 303,
        "applied": 303,
        "dropped": 0,
        "repeated": 0,
        "skipped": 0,
    }


def test_a_worker_without_rows_in_the_last_step_changes_nothing(tmp_path: Path) -> None:
    data = make_data(49)  # the last step has one row, for one of three workers
    many = fit(Net(), tmp_path / "many", train=data, cluster=fb.Local(3), batch_size=8)
    one = fit(Net(), tmp_path / "one", train=data, batch_size=24)
    assert_same_weights(many, one)


def test_accumulation_gives_the_same_result(tmp_path: Path) -> None:
    parts = fit(Net(), tmp_path / "parts", batch_size=16, compute={"accumulate": 3})
    whole = fit(Net(), tmp_path / "whole", batch_size=16)
    assert_same_weights(parts, whole)


def test_sample_weights_are_exact_over_workers(tmp_path: Path) -> None:
    x, y = make_data()
    data = {"x": x, "y": y, "w": torch.linspace(0.1, 2.0, len(x), dtype=torch.float64)}
    options = {"train": data, "label": "y", "weight": "w"}
    many = fit(Net(), tmp_path / "many", cluster=fb.Local(2), batch_size=12, **options)
    one = fit(Net(), tmp_path / "one", batch_size=24, **options)
    assert_same_weights(many, one)
    plain = fit(Net(), tmp_path / "plain", batch_size=24)
    assert not torch.equal(weights(one)["layers.0.weight"], weights(plain)["layers.0.weight"])


def test_clipping_sees_the_gradient_of_all(tmp_path: Path) -> None:
    options = {"compute": {"clip_norm": 0.05}}
    many = fit(Net(), tmp_path / "many", cluster=fb.Local(2), batch_size=12, **options)
    one = fit(Net(), tmp_path / "one", batch_size=24, **options)
    assert_same_weights(many, one)


def build_with_own_seed() -> Net:
    model = Net()
    torch.manual_seed(random.SystemRandom().randrange(10**6))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.register_buffer("noise", torch.randn(3, dtype=torch.float64))
    return model


class WriteReplica(fb.Callback):
    def on_start(self, view: Any) -> None:
        torch.save(view.model.state_dict(), view.run_dir / f"replica-{view.rank}.pt")


def test_first_weights_and_buffers_are_the_same_everywhere(tmp_path: Path) -> None:
    fit(
        build_with_own_seed,
        tmp_path / "run",
        cluster=fb.Local(2),
        max_steps=1,
        callbacks=[WriteReplica],
    )
    first, second = (torch.load(tmp_path / "run" / f"replica-{rank}.pt") for rank in (0, 1))
    assert "noise" in first
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("seed", "optimizer", "precision"),
    [(1, ADAMW, "fp32"), (2, ADAMW, "fp32"), (3, LAMB, "fp32"), (4, LAMB, "bf16")],
)
def test_a_killed_run_goes_on_bit_by_bit_on_one_worker(
    tmp_path: Path, seed: int, optimizer: Any, precision: str
) -> None:
    step = random.Random(seed).randrange(2, 35)
    options = {
        "batch_size": 8,
        "checkpoints": {"every_steps": 5},
        "optimizer": optimizer,
        "compute": {"precision": precision},
    }
    with pytest.raises(WorkerLostError, match="SIGKILL"):
        fit(DropoutNet(), tmp_path / "cut", callbacks=[Strike(0, step, "kill")], **options)
    resumed = fit(DropoutNet(), tmp_path / "cut", **options)
    whole = fit(DropoutNet(), tmp_path / "whole", **options)
    assert_same_weights(resumed, whole, exactly=True)


def test_a_killed_run_goes_on_the_same_on_two_workers(tmp_path: Path) -> None:
    step = random.Random(7).randrange(2, 20)
    options = {
        "batch_size": 8,
        "cluster": fb.Local(2),
        "checkpoints": {"every_steps": 4},
        "schedule": fb.Schedule(kind="cosine", warmup=5),
    }
    with pytest.raises(WorkerLostError):
        fit(DropoutNet(), tmp_path / "cut", callbacks=[Strike(1, step, "kill")], **options)
    resumed = fit(DropoutNet(), tmp_path / "cut", **options)
    whole = fit(DropoutNet(), tmp_path / "whole", **options)
    assert_same_weights(resumed, whole)


def test_a_plateau_lowers_the_rate_the_same_everywhere_and_after_a_resume(tmp_path: Path) -> None:
    plateau = "torch.optim.lr_scheduler:ReduceLROnPlateau"
    args = {"factor": 0.1, "patience": 0, "threshold": 0.1}
    options = {
        "valid": make_data(40, seed=1),
        "metrics": ["acc"],
        "schedule": {"kind": "torch", "scheduler": plateau, "args": args, "metric": "acc"},
        "batch_size": 24,
    }
    whole = fit(Net(), tmp_path / "whole", epochs=6, **options)
    fit(Net(), tmp_path / "cut", epochs=3, **options)
    resumed = fit(Net(), tmp_path / "cut", epochs=6, **options)
    assert_same_weights(resumed, whole, exactly=True)
    options["batch_size"] = 12
    served = fit(
        Net(),
        tmp_path / "served",
        epochs=6,
        strategy=fb.ParameterServer(servers=1, consistency="synchronous"),
        cluster=fb.Local(2),
        **options,
    )
    assert_same_weights(served, whole)
    run = RunDirectory(whole.run_dir)
    state = read_checkpoint(checkpoint_path(run, whole.report["step"]))
    assert state.extra["schedules"][""]["rates"][0] < SGD.args["lr"]


def test_a_run_goes_on_with_another_number_of_workers_from_an_epochs_start(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit(Net(), run, batch_size=12, cluster=fb.Local(2), epochs=1)
    options = {"cluster": fb.Local(3), "batch_size": 12}
    resumed = fit(Net(), run, epochs=2, **options)
    assert resumed.report["rows"]["applied"] == 202
    assert resumed.report["workers"] == 3


def test_rows_by_number_go_on_at_the_exact_row_with_other_workers(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit(Net(), run, batch_size=8, cluster=fb.Local(2), epochs=1, max_steps=3)
    resumed = fit(Net(), run, batch_size=8, cluster=fb.Local(3), epochs=1)
    # 3 x 16 rows, then 53 rows in steps of 24: each row of the epoch was seen once.
    assert resumed.report["rows"] == {
        "read": 101,
        "applied": 101,
        "dropped": 0,
        "repeated": 0,
        "skipped": 0,
    }
    assert resumed.report["step"] == 3 + 3


def write_parquet(path: Path, rows: int) -> str:
    x, y = make_data(rows)
    columns = {f"c{i}": x[:, i] for i in range(6)} | {"y": y}
    pq.write_table(pa.table(columns), path, row_group_size=17)
    return str(path)


def test_a_killed_run_on_parquet_goes_on_bit_by_bit(tmp_path: Path) -> None:
    options = {
        "train": write_parquet(tmp_path / "data.parquet", 101),
        "inputs": fb.columns("c0:c5"),
        "label": "y",
        "batch_size": 8,
        "loading": {"shuffle_rows": 24},
        "checkpoints": {"every_steps": 5},
    }
    with pytest.raises(WorkerLostError):
        fit(DropoutNet(), tmp_path / "cut", callbacks=[Strike(0, 17, "kill")], **options)
    resumed = fit(DropoutNet(), tmp_path / "cut", **options)
    whole = fit(DropoutNet(), tmp_path / "whole", **options)
    assert_same_weights(resumed, whole, exactly=True)


def test_streamed_rows_are_each_applied_once_by_three_workers(tmp_path: Path) -> None:
    result = fit(
        Net(),
        tmp_path / "run",
        train=write_parquet(tmp_path / "data.parquet", 101),
        inputs=fb.columns("c0:c5"),
        label="y",
        batch_size=8,
        cluster=fb.Local(3),
        epochs=2,
    )
    assert result.report["rows"]["applied"] == 202


class Items(Dataset[Any]):
    def __len__(self) -> int:
        return 101

    def __getitem__(self, row: int) -> Any:
        x, y = DATA
        return x[row], y[row]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(zip(*DATA, strict=True))


def own_loader(shard: Any) -> Any:
    x, y = DATA
    for start in range(8 * shard.index, 101, 8 * shard.count):
        yield torch.from_numpy(x[start : start + 8]), torch.from_numpy(y[start : start + 8])


DATA = make_data()


@pytest.mark.parametrize("data", [Items(), Stream(), own_loader], ids=["map", "iterable", "loader"])
def test_ones_own_dataset_goes_on_where_it_was(tmp_path: Path, data: Any) -> None:
    options = {"train": data, "batch_size": 8, "checkpoints": {"every_steps": 5}}
    restart = {"callbacks": [Strike(0, 18, "kill")], "recovery": {"max_restarts": 1}}
    struck = fit(DropoutNet(), tmp_path / "struck", **restart, **options)
    whole = fit(DropoutNet(), tmp_path / "whole", **options)
    assert struck.report["restarts"] == 1
    assert_same_weights(struck, whole, exactly=True)
