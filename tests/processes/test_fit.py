"""What `fit` takes, and what it gives back."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
)
from toy import QUIET, Net, StopAt, assert_same_weights, make_data

import flambeau as fb
from flambeau.errors import (
    ConfigError,
    DataError,
    JobFailedError,
    ModelError,
    RunDirectoryError,
    WorkerFailedError,
)
from flambeau.observe import read_events
from flambeau.training.half_precision import bf16_slowdown, bf16_warning

pytestmark = pytest.mark.usefixtures("loaded_once")

X, Y = make_data(300)


def fit(model: Any, train: Any, run_dir: Path, **changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "loss": "cross_entropy",
        "optimizer": fb.optim("sgd", lr=0.2, momentum=0.9),
        "batch_size": 32,
        "observe": QUIET,
        "run_dir": run_dir,
        **changes,
    }
    return fb.fit(model, train, **arguments)


# The kinds of data


class Items(Dataset[Any]):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, row: int) -> Any:
        return X[row], Y[row]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(zip(X, Y, strict=True))


def stacked(items: list[Any]) -> Any:
    x, y = zip(*items, strict=True)
    return torch.from_numpy(np.stack(x)), torch.tensor(y)


def own_loader(shard: Any) -> Any:
    rows = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    mine = torch.utils.data.Subset(rows, range(shard.index, len(X), shard.count))
    return DataLoader(mine, batch_size=32)


def make_arrays() -> Any:
    return X, Y


DATA = {
    "arrays": (X, Y),
    "tensors": (torch.from_numpy(X), torch.from_numpy(Y)),
    "dataset": Items(),
    "iterable": Stream(),
    "loader": own_loader,
    "data loader": DataLoader(Items(), batch_size=32, shuffle=True, collate_fn=stacked),
    "function": make_arrays,
}


@pytest.mark.parametrize("kind", DATA)
def test_every_kind_of_data_trains_on_each_row_once_an_epoch(tmp_path: Path, kind: str) -> None:
    result = fit(Net(), DATA[kind], tmp_path / "run", cluster=fb.Local(2), epochs=2)
    assert result.report["rows"]["applied"] == 600


def test_a_dataset_runs_in_loader_processes(tmp_path: Path) -> None:
    options = {"loading": {"shuffle": False}, "epochs": 2}
    inside = fit(Net(), Items(), tmp_path / "inside", **options)
    outside = fit(Net(), Items(), tmp_path / "outside", loading={"shuffle": False, "workers": 2})
    assert inside.report["rows"]["applied"] == 2 * outside.report["rows"]["applied"] == 600


def named_columns() -> dict[str, Any]:
    return {f"c{i}": X[:, i] for i in range(6)} | {"y": Y}


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow"])
def test_files_of_columns_train_alike(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows.{suffix}"
    table = pa.table(named_columns())
    if suffix == "parquet":
        pq.write_table(table, path, row_group_size=64)
    elif suffix == "csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.feather.write_feather(table, str(path), compression="uncompressed")
    options = {"inputs": fb.columns("c0:c5"), "label": "y", "loading": {"shuffle": False}}
    from_file = fit(Net(), str(path), tmp_path / "file", **options)
    from_memory = fit(Net(), named_columns(), tmp_path / "memory", **options)
    assert_same_weights(from_file, from_memory)


# The model


def test_a_model_may_be_a_class_built_on_the_workers(tmp_path: Path) -> None:
    by_class = fit(Net, (X, Y), tmp_path / "class", cluster=fb.Local(2))
    by_value = fit(Net(), (X, Y), tmp_path / "value", cluster=fb.Local(2))
    assert_same_weights(by_class, by_value)
    code = json.loads((tmp_path / "class" / "code" / "index.json").read_text())
    assert code["model"] == {"by": "path", "path": "toy:Net"}
    assert [path.name for path in (tmp_path / "value" / "code").glob("*.pkl")] == ["model.pkl"]


def test_the_model_that_was_passed_is_not_changed(tmp_path: Path) -> None:
    model = Net()
    before = model.layers[0].weight.clone()
    result = fit(model, (X, Y), tmp_path / "run")
    assert torch.equal(model.layers[0].weight, before)
    assert not torch.equal(result.model.layers[0].weight, before)


SCRIPT = """
import numpy as np, torch
import flambeau as fb

class Mine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.layer(x)

def my_loss(output, batch):
    return ((output.squeeze(1) - batch["y"]) ** 2).mean()

x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
result = fb.fit(Mine(), (x, x.sum(1)), loss=my_loss, optimizer=fb.optim("sgd", lr=0.1), epochs=20,
                batch_size=8, cluster=fb.Local(2), observe={"progress": "none"}, run_dir="run")
made = result.model(torch.from_numpy(x)).squeeze(1).detach()
print("error", float((made - x.sum(1)).abs().mean()))
"""


@pytest.mark.parametrize("how", ["script", "stdin"])
def test_code_of_a_script_or_of_standard_input_travels(tmp_path: Path, how: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py"] if how == "script" else [sys.executable, "-"]
    done = subprocess.run(
        command, input=SCRIPT, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[1]) < 0.05


class Towers(nn.Module):
    """Two inputs, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 4), nn.Linear(3, 4)
        self.click, self.buy = nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> dict[str, torch.Tensor]:
        both = torch.cat([self.left(user), self.right(item)], dim=1).tanh()
        return {"click": self.click(both), "buy": self.buy(both)}


def test_several_inputs_and_outputs_with_missing_labels(tmp_path: Path) -> None:
    click = (X[:, 0] > 0).astype(np.float32)
    buy = np.where(click > 0, (X[:, 3] > 0).astype(np.float32), np.nan)
    data = {f"c{i}": X[:, i] for i in range(6)} | {"clicked": click, "bought": buy}
    result = fit(
        Towers(),
        data,
        tmp_path / "run",
        valid=data,
        inputs={"user": fb.columns("c0:c2"), "item": fb.columns("c3:c5")},
        label={"click": "clicked", "buy": "bought"},
        loss={"click": "bce", "buy": "bce"},
        metrics=["auc"],
        cluster=fb.Local(2),
        epochs=10,
    )
    assert result.metrics["click/auc"] > 0.95
    assert result.metrics["buy/auc"] > 0.9


class Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gen = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
        self.disc = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.gen(x)
        return result


def gan_step(ctx: Any, batch: Any) -> Any:
    real = batch["x"].float()
    ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
    bce = nn.functional.binary_cross_entropy_with_logits
    fake = ctx.model.gen(torch.randn(len(real), 2))
    loss = bce(ctx.model.disc(real), ones) + bce(ctx.model.disc(fake.detach()), zeros)
    ctx.backward(loss)
    ctx.update("disc")
    ctx.backward(bce(ctx.model.disc(fake), ones))
    ctx.update("gen")
    ctx.zero_grad("disc")
    ctx.log(discriminator=loss)
    return loss


def test_a_gan_trains_with_two_optimizers_through_its_own_step(tmp_path: Path) -> None:
    torch.manual_seed(1)
    x = np.random.default_rng(0).normal(3.0, 0.3, size=(512, 1)).astype(np.float32)
    adam = fb.optim("adam", lr=0.01)
    result = fit(
        Gan(),
        (x,),
        tmp_path / "run",
        loss=None,
        step=gan_step,
        optimizer={"gen": adam, "disc": adam},
        cluster=fb.Local(2),
        epochs=25,
    )
    torch.manual_seed(0)
    made = result.model.gen(torch.randn(1000, 2))
    assert abs(float(made.mean().detach()) - 3.0) < 1.0


def test_groups_of_parameters_have_their_own_arguments(tmp_path: Path) -> None:
    frozen = fb.optim("sgd", lr=0.2, groups={"layers.0.*": {"lr": 0.0}})
    result = fit(Net(), (X, Y), tmp_path / "run", optimizer=frozen)
    assert torch.equal(result.model.layers[0].weight, Net().layers[0].weight)
    assert not torch.equal(result.model.layers[2].weight, Net().layers[2].weight)


# What comes out


def test_a_result_evaluates_and_predicts(tmp_path: Path) -> None:
    result = fit(Net(), (X, Y), tmp_path / "run", valid=(X, Y), metrics=["accuracy"], epochs=8)
    assert result.metrics["accuracy"] > 0.9
    assert result.evaluate()["accuracy"] == pytest.approx(result.metrics["accuracy"])
    assert result.evaluate((X[:50], Y[:50]), metrics=["top5"])["top5"] == 1.0
    table = result.predict(X)
    assert table.column("prediction").to_numpy().tolist() == (
        result.model(torch.from_numpy(X)).argmax(1).tolist()
    )
    assert result.predict(X, out=tmp_path / "scores.parquet") == 300
    assert pq.read_table(tmp_path / "scores.parquet").column_names == [
        "prediction",
        "probabilities",
    ]
    assert [entry["epoch"] for entry in result.history] == list(range(1, 9))


def test_keys_are_copied_beside_predictions(tmp_path: Path) -> None:
    data = named_columns() | {"id": np.arange(300) * 7}
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(data), path)
    result = fit(
        Net(),
        str(path),
        tmp_path / "run",
        inputs=fb.columns("c0:c5"),
        label="y",
        keys=["id"],
    )
    table = result.predict(str(path))
    assert table.column("id").to_pylist() == [7 * row for row in range(300)]


def test_the_evaluator_follows_every_checkpoint_and_marks_the_best(tmp_path: Path) -> None:
    result = fit(
        Net(),
        (X, Y),
        tmp_path / "run",
        valid=(X, Y),
        metrics=["accuracy"],
        epochs=4,
        evaluator=True,
        checkpoints={"every_epochs": 1, "keep": 1, "best": "accuracy"},
        cluster=fb.Local(2),
    )
    assert [entry["epoch"] for entry in result.history] == [1, 2, 3, 4]
    best = json.loads((tmp_path / "run" / "best.json").read_text())
    assert best["value"] == max(entry["accuracy"] for entry in result.history)
    assert result.model_at("best") is not None
    inside = fit(Net(), (X, Y), tmp_path / "in", valid=(X, Y), metrics=["accuracy"], epochs=4)
    assert result.history[0].keys() == inside.history[0].keys()


def test_metrics_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    options = {"valid": (X[:97], Y[:97]), "metrics": ["accuracy", "logloss"], "max_steps": 1}
    one = fit(Net(), (X, Y), tmp_path / "one", batch_size=96, **options)
    many = fit(Net(), (X, Y), tmp_path / "many", cluster=fb.Local(3), **options)
    assert many.metrics == pytest.approx(one.metrics, abs=1e-9)


def test_early_stopping_ends_the_training(tmp_path: Path) -> None:
    result = fit(
        Net(),
        (X, Y),
        tmp_path / "run",
        valid=(X, Y),
        metrics=["accuracy"],
        epochs=50,
        optimizer=fb.optim("sgd", lr=0.0),
        early_stopping=fb.EarlyStopping(metric="accuracy", patience=2),
        cluster=fb.Local(2),
    )
    assert len(result.history) == 3
    assert result.report["status"] == "stopped_early"


STRATEGIES = [fb.AllReduce(), fb.ParameterServer(), fb.ParameterServer(consistency="asynchronous")]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=["all-reduce", "rounds", "asynchronous"])
def test_a_callback_of_one_worker_stops_all(tmp_path: Path, strategy: Any) -> None:
    cluster, stop = fb.Local(2), StopAt(rank=1, step=7)
    options = {"cluster": cluster, "strategy": strategy, "callbacks": [stop], "epochs": 5_000}
    result = fit(Net(), (X, Y), tmp_path / "run", **options)
    assert result.report["status"] == "stopped_early"
    if isinstance(strategy, fb.AllReduce):
        assert result.report["step"] == 7


def test_an_early_stopped_run_does_not_train_on_when_started_again(tmp_path: Path) -> None:
    options = {
        "valid": (X, Y),
        "epochs": 50,
        "optimizer": fb.optim("sgd", lr=0.0),
        "early_stopping": fb.EarlyStopping(patience=1),
    }
    first = fit(Net(), (X, Y), tmp_path / "run", **options)
    again = fit(Net(), (X, Y), tmp_path / "run", **options)
    assert first.report["stopped_early"]
    assert again.report["step"] == first.report["step"]


class Undecodable(Items):
    def __getitem__(self, row: int) -> Any:
        if row == 77:
            raise DataError("row 77 cannot be decoded")
        return super().__getitem__(row)


def test_an_error_in_a_loader_process_is_one_sentence_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^row 77 cannot be decoded$"):
        fit(Net(), Undecodable(), tmp_path / "run", loading={"workers": 2})


def test_a_file_serves_a_model_that_was_trained_on_arrays(tmp_path: Path) -> None:
    result = fit(Net(), (X, Y), tmp_path / "run", metrics=["accuracy"])
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"y": Y, "x": list(X)}), path)
    in_memory = result.evaluate((X, Y))
    assert result.evaluate(str(path)) == pytest.approx(in_memory)
    assert result.predict(str(path)).num_rows == len(X)


def test_scalars_are_in_tensorboard_and_mlperf_lines_in_their_file(tmp_path: Path) -> None:
    fit(
        Net(),
        (X, Y),
        tmp_path / "run",
        valid=(X, Y),
        metrics=["accuracy"],
        epochs=2,
        cluster=fb.Local(2),
        observe={"progress": "none", "mlperf_log": True, "profile": (2, 4)},
    )
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    board.Reload()
    tags = set(board.Tags()["scalars"])
    assert {"train/loss", "train/lr", "train/rows_per_second", "valid/accuracy"} <= tags
    assert {"time/data", "time/compute", "time/communication"} <= tags
    lines = (tmp_path / "run" / "mlperf.log").read_text().splitlines()
    assert all(line.startswith(":::MLLOG {") for line in lines)
    traces = sorted(path.name for path in (tmp_path / "run" / "tensorboard").glob("*trace.json"))
    assert traces == ["worker-0.steps-2-4.pt.trace.json", "worker-1.steps-2-4.pt.trace.json"]


def test_a_finished_run_goes_on_when_epochs_are_added(tmp_path: Path) -> None:
    fit(Net(), (X, Y), tmp_path / "run", epochs=1)
    longer = fit(Net(), (X, Y), tmp_path / "run", epochs=2)
    assert_same_weights(longer, fit(Net(), (X, Y), tmp_path / "whole", epochs=2), exactly=True)


def test_a_new_run_starts_from_another_ones_weights(tmp_path: Path) -> None:
    first = fit(Net(), (X, Y), tmp_path / "first")
    options = {"optimizer": fb.optim("sgd", lr=0.0), "init_from": str(tmp_path / "first")}
    second = fit(Net(), (X, Y), tmp_path / "second", cluster=fb.Local(2), **options)
    assert_same_weights(first, second, exactly=True)
    assert second.report["rows"]["applied"] == 300


def test_some_weights_can_be_taken_and_the_rest_is_listed(tmp_path: Path) -> None:
    first = fit(Net(), (X, Y), tmp_path / "first")
    wider = fit(
        Net(classes=5),
        (X, Y),
        tmp_path / "second",
        optimizer=fb.optim("sgd", lr=0.0),
        init_from={"run": str(tmp_path / "first"), "patterns": ["layers.*"]},
    )
    assert torch.equal(wider.model.layers[0].weight, first.model.layers[0].weight)
    events = (tmp_path / "second" / "events.jsonl").read_text()
    assert "layers.2.weight [3, 8] in the checkpoint, [5, 8] in the model" in events


def test_a_damaged_checkpoint_is_skipped_with_a_warning(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit(Net(), (X, Y), run, epochs=2)
    newest = sorted((run / "checkpoints").iterdir())[-1]
    (newest / "dense.safetensors").write_bytes(b"short")
    again = fit(Net(), (X, Y), run, epochs=2)
    assert_same_weights(again, fit(Net(), (X, Y), tmp_path / "whole", epochs=2), exactly=True)
    assert f"skipped the checkpoint {newest.name}" in (run / "events.jsonl").read_text()


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": fb.AllReduce(compression="bf16")},
        {"strategy": fb.AllReduce(compression="fp16")},
        {"strategy": fb.AllReduce(compression="powersgd")},
        {"strategy": fb.AllReduce(local_sgd=3)},
        {"compute": {"precision": "bf16"}},
    ],
    ids=["bf16", "fp16", "powersgd", "local-sgd", "bf16-compute"],
)
def test_ways_of_computing_learn_too(tmp_path: Path, options: dict[str, Any]) -> None:
    result = fit(
        Net(double=False),
        (X, Y),
        tmp_path / "run",
        valid=(X, Y),
        metrics=["accuracy"],
        epochs=8,
        cluster=fb.Local(2),
        **options,
    )
    assert result.metrics["accuracy"] > 0.85


def test_bf16_where_it_is_slow_gives_one_warning(tmp_path: Path) -> None:
    compute = {"precision": "bf16"}
    fit(Net(double=False), (X, Y), tmp_path / "run", cluster=fb.Local(2), compute=compute)
    given = [
        event.fields["text"]
        for event in read_events(tmp_path / "run" / "events.jsonl")
        if event.kind == "warning"
    ]
    expected = 0 if bf16_warning(bf16_slowdown()) is None else 1
    assert sum("a CPU without instructions for it" in text for text in given) == expected


# What goes wrong

NAN = X.copy()
NAN[17, 2] = np.nan
BAD_LABELS = np.where(np.arange(len(Y)) == 200, 9, Y)

MISTAKES: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "missing file": (DataError, "nowhere", {"train": "nowhere/*.parquet"}),
    "lengths": (DataError, "'x' has 300, 'y' has 299", {"train": (X, Y[:299])}),
    "nan": (DataError, "'x' holds NaN.*row 17", {"train": (NAN, Y)}),
    "labels": (DataError, "label 9 in row 200 .* of train=", {"train": (X, BAD_LABELS)}),
    "few rows": (DataError, "1 row.* for 2 workers", {"train": (X[:1], Y[:1])}),
    "too many columns": (ModelError, r"2 input column", {"train": ((X, X), Y)}),
    "unknown parameter": (ModelError, "forward.. needs 'x'", {"train": {"a": X, "y": Y}}),
    "no such label": (DataError, "no column 'z'", {"train": {"x": X, "y": Y}, "label": "z"}),
    "output and loss": (ModelError, "same shape", {"loss": "bce"}),
    "no loss": (ModelError, "the model's output must be the loss", {"loss": None}),
    "unknown loss": (ConfigError, "did you mean 'cross_entropy'", {"loss": "cros_entropy"}),
    "unknown metric": (
        ConfigError,
        "did you mean 'accuracy'",
        {"metrics": ["acuracy"], "valid": (X, Y)},
    ),
    "unknown optimizer": (ConfigError, "did you mean 'adam'", {"optimizer": "adm"}),
    "optimizer argument": (
        ModelError,
        "takes no argument 'leaning_rate'",
        {"optimizer": fb.optim("sgd", leaning_rate=1)},
    ),
    "not a model": (ModelError, "must be an nn.Module", {"model": dict}),
    "data loader": (
        ConfigError,
        "SubsetRandomSampler that chooses its rows",
        {"train": DataLoader(Items(), sampler=SubsetRandomSampler([1, 2]))},
    ),
    "built optimizer": (
        ConfigError,
        "f.parameters.",
        {"optimizer": torch.optim.Adam([nn.Parameter(torch.zeros(1))])},
    ),
    "shape": (ModelError, "first rows of train=.*mat1 and mat2", {"train": (X[:, :5], Y)}),
    "shape of valid": (ModelError, "first rows of valid=", {"valid": (X[:, :5], Y)}),
    "labels of valid": (
        DataError,
        "label 9 in row 200 .* of valid=",
        {"valid": (X, BAD_LABELS)},
    ),
    "no gpu": (ConfigError, "torch sees no GPU", {"compute": {"device": "cuda"}}),
    "metric to watch": (
        ConfigError,
        "no metric 'auc' to watch",
        {"valid": (X, Y), "checkpoints": {"best": "auc"}},
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_explained_and_nothing_is_trained(tmp_path: Path, case: str) -> None:
    kind, message, changes = MISTAKES[case]
    changes = {"model": Net(), "train": (X, Y), **changes}
    model, train = changes.pop("model"), changes.pop("train")
    with pytest.raises(kind, match=message):
        fit(model, train, tmp_path / "run", cluster=fb.Local(2), **changes)
    checkpoints = tmp_path / "run" / "checkpoints"
    assert not checkpoints.exists() or not list(checkpoints.iterdir())


def test_a_diverging_loss_names_the_step_and_the_epoch(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match=r"at step \d+ of epoch 0"):
        fit(
            nn.Linear(6, 1), (X, Y), tmp_path / "run", loss="mse", optimizer=fb.optim("sgd", lr=1e9)
        )


def test_settings_that_may_not_change_are_named_on_resume(tmp_path: Path) -> None:
    fit(Net(), (X, Y), tmp_path / "run")
    with pytest.raises(RunDirectoryError, match="batch_size: 32 -> 64"):
        fit(Net(), (X, Y), tmp_path / "run", batch_size=64)


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").touch()
    with pytest.raises(RunDirectoryError, match=r"it holds 'thesis\.tex'"):
        fit(Net(), (X, Y), tmp_path / "home")
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["thesis.tex"]


# run


def rank_and_sum(value: int) -> tuple[int, int, str]:
    import os

    total = torch.tensor([torch.distributed.get_rank() + value])
    torch.distributed.all_reduce(total)
    return torch.distributed.get_rank(), int(total), os.environ["LOCAL_RANK"]


def test_run_gives_the_results_by_rank() -> None:
    assert fb.run(rank_and_sum, 10, cluster=fb.Local(3)) == [
        (0, 33, "0"),
        (1, 33, "1"),
        (2, 33, "2"),
    ]


def fails_on_one() -> None:
    if torch.distributed.get_rank() == 1:
        raise KeyError("only here")
    torch.distributed.barrier()


def test_run_shows_the_first_failure_and_ends_the_rest() -> None:
    with pytest.raises(WorkerFailedError, match=r"worker 1 failed[\s\S]*KeyError: 'only here'"):
        fb.run(fails_on_one, cluster=fb.Local(2))


def cores() -> tuple[set[int], str | None]:
    import os

    return os.sched_getaffinity(0), os.environ.get("OMP_NUM_THREADS")


def test_workers_have_disjoint_cores() -> None:
    import os

    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    (first, threads), (second, _) = fb.run(cores, cluster=fb.Local(2))
    assert first
    assert second
    assert not first & second
    assert threads == str(len(first))


def test_without_affinity_workers_have_count_cores_and_no_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import os

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = fb.run(cores, cluster=fb.Local(2, affinity="none"))
    assert found == [(os.sched_getaffinity(0), None)] * 2


def test_two_runs_without_a_run_dir_are_two_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = {"loss": "cross_entropy", "batch_size": 64, "observe": QUIET}
    first, second = (fb.fit(Net, (X, labels), **arguments) for labels in (Y, 2 - Y))
    assert first.run_dir != second.run_dir
    with pytest.raises(AssertionError):
        assert_same_weights(first, second)
