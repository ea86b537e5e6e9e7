"""Tables and their optimizers against torch."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flambeau.config.optimizer import OptimizerSpec, optim
from flambeau.config.tables import Initializer, TableSpec
from flambeau.errors import ConfigError
from flambeau.kernels import cores
from flambeau.tables.precision import narrow, widen
from flambeau.tables.table import Table

IDS = np.array([5, -(2**63), 2**63 - 1, 0], dtype=np.int64)


def table(optimizer: OptimizerSpec | None = None, **changes: Any) -> Table:
    fields: dict[str, Any] = {"name": "t", "dim": 3, "dtype": "fp64", **changes}
    return Table(TableSpec(**fields), 0, optimizer)


TORCH = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd-decay": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.2}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "eps": 1e-10}),
    "adam": (torch.optim.Adam, {"lr": 0.1}),
    "adam-decay": (torch.optim.Adam, {"lr": 0.1, "weight_decay": 0.1}),
    "adamw": (torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.1}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.1, "alpha": 0.9}),
}


@pytest.mark.parametrize("case", TORCH)
def test_when_every_row_is_touched_it_is_torchs_optimizer(case: str) -> None:
    kind, args = TORCH[case]
    ours = {name: value for name, value in args.items() if name != "nesterov"}
    subject = table(optim(case.split("-")[0], **ours))
    weight = torch.nn.Parameter(torch.from_numpy(subject.pull(IDS, training=True)))
    theirs = kind([weight], **args)
    rng = np.random.default_rng(1)
    for _ in range(6):
        grads = rng.normal(size=(4, 3))
        subject.push(IDS, grads)
        weight.grad = torch.from_numpy(grads.copy())
        theirs.step()
    # Lazy Adam adds eps before its bias correction, as SparseAdam does, and Adam after it.
    tolerance = 1e-5 if "adam" in case else 1e-12
    np.testing.assert_allclose(
        subject.pull(IDS, training=False), weight.detach().numpy(), rtol=0, atol=tolerance
    )


def test_a_large_batch_on_several_cores_is_many_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: [0, 1, 2])
    monkeypatch.setattr(cores, "PART_ROWS", 100)
    rng = np.random.default_rng(2)
    ids, grads = rng.permutation(1000), rng.normal(size=(1000, 3))
    whole, pieces = table(optim("adagrad", lr=0.1)), table(optim("adagrad", lr=0.1))
    for step in (1, 2):
        whole.push(ids, grads, step=step)
        for start in range(0, 1000, 50):
            part = slice(start, start + 50)
            pieces.push(ids[part], grads[part], step=step)
    one_by_one = [
        pieces.pull(ids[start : start + 50], training=False) for start in range(0, 1000, 50)
    ]
    np.testing.assert_array_equal(whole.pull(ids, training=False), np.concatenate(one_by_one))


def test_adam_on_some_rows_is_torchs_sparse_adam() -> None:
    subject = table(optim("adam", lr=0.1))
    start = torch.from_numpy(subject.pull(IDS, training=True))
    weight = torch.nn.Parameter(start)
    theirs = torch.optim.SparseAdam([weight], lr=0.1)
    rng = np.random.default_rng(1)
    for step in range(8):
        some = [step % 4, (step + 1) % 4] if step % 3 else [step % 4]
        grads = rng.normal(size=(len(some), 3))
        subject.push(IDS[some], grads)
        weight.grad = torch.sparse_coo_tensor(
            [some], torch.from_numpy(grads), (4, 3), check_invariants=True
        )
        theirs.step()
    ours = subject.pull(IDS, training=False)
    np.testing.assert_allclose(ours, weight.detach().numpy(), rtol=0, atol=1e-12)


def test_rowwise_adagrad_follows_its_formula() -> None:
    subject = table(optim("rowwise_adagrad", lr=0.1, eps=1e-8, initial=0.5))
    value = subject.pull(IDS[:1], training=True)[0].copy()
    accumulated = 0.5
    for grad in np.random.default_rng(0).normal(size=(5, 3)):
        subject.push(IDS[:1], grad[None].copy())
        accumulated += (grad**2).mean()
        value -= 0.1 * grad / (np.sqrt(accumulated) + 1e-8)
    np.testing.assert_allclose(subject.pull(IDS[:1], training=False)[0], value)


def test_ftrl_follows_its_formula() -> None:
    lr, l1, l2, beta = 0.3, 0.2, 0.1, 1.0
    subject = table(optim("ftrl", lr=lr, l1=l1, l2=l2, beta=beta))
    w = subject.pull(IDS[:1], training=True)[0].copy()
    z, n = np.zeros(3), np.zeros(3)
    for g in np.random.default_rng(0).normal(size=(5, 3)):
        subject.push(IDS[:1], g[None].copy())
        z += g - (np.sqrt(n + g * g) - np.sqrt(n)) / lr * w
        n += g * g
        shrunk = -(z - np.sign(z) * l1) / ((beta + np.sqrt(n)) / lr + l2)
        w = np.where(np.abs(z) <= l1, 0.0, shrunk)
    np.testing.assert_allclose(subject.pull(IDS[:1], training=False)[0], w)


def test_the_gradient_of_a_row_is_clipped_by_its_norm() -> None:
    subject = table(optim("sgd", lr=1.0, clip=1.0))
    before = subject.pull(IDS[:2], training=True)
    subject.push(IDS[:2], np.array([[3.0, 0.0, 4.0], [0.1, 0.0, 0.0]]))
    moved = before - subject.pull(IDS[:2], training=False)
    np.testing.assert_allclose(moved, [[0.6, 0.0, 0.8], [0.1, 0.0, 0.0]])


def test_first_values_depend_on_seed_table_and_id_alone() -> None:
    first, second = table(), table()
    forwards = first.pull(IDS, training=True)
    second.pull(np.arange(100, 200), training=True)
    np.testing.assert_array_equal(second.pull(IDS[::-1], training=True)[::-1], forwards)
    assert not np.array_equal(table(name="u").pull(IDS, training=True), forwards)
    assert not np.array_equal(
        Table(TableSpec(name="t", dim=3, dtype="fp64"), 1).pull(IDS, training=True), forwards
    )


@pytest.mark.parametrize(
    ("initializer", "low", "high"),
    [
        (Initializer(kind="uniform", scale=0.5), -0.5, 0.5),
        (Initializer(kind="constant", value=2.0), 2.0, 2.0),
        (Initializer(kind="normal", scale=0.0), 0.0, 0.0),
    ],
)
def test_initializers_keep_their_range(initializer: Initializer, low: float, high: float) -> None:
    values = table(initializer=initializer).pull(np.arange(2000), training=True)
    assert low <= values.min() <= values.max() <= high


def test_without_training_an_id_without_a_row_reads_as_the_default_row() -> None:
    subject = table(initializer=Initializer(kind="constant", value=2.0))
    assert subject.pull(IDS, training=False).tolist() == [[2.0] * 3] * 4


@pytest.mark.parametrize("training", [True, False])
def test_looking_changes_nothing(training: bool) -> None:
    subject = table()
    first = subject.pull(IDS, training=training)
    np.testing.assert_array_equal(subject.pull(IDS, training=training), first)
    assert len(subject) == 0


@pytest.mark.parametrize("dtype", ["fp32", "fp64", "bf16", "fp16"])
def test_the_first_values_of_an_id_are_those_its_row_begins_with(dtype: str) -> None:
    subject = table(optim("sgd", lr=0.0), dtype=dtype)
    first = subject.pull(IDS, training=True)
    assert first.any()
    subject.push(IDS, np.ones((4, 3)))
    assert len(subject) == 4
    np.testing.assert_array_equal(subject.pull(IDS, training=False), first)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_an_empty_batch_is_fine(dtype: str) -> None:
    subject = table(optim("adagrad", clip=1.0), dtype=dtype)
    nobody = np.empty(0, np.int64)
    subject.push(nobody, np.empty((0, 3)))
    assert subject.pull(nobody, training=True).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
def test_half_precision_rows_follow_single_precision_ones(dtype: str, name: str) -> None:
    half, single = (table(optim(name, lr=0.05), dtype=kind) for kind in (dtype, "fp32"))
    rng = np.random.default_rng(0)
    for table_ in (half, single):
        table_.pull(IDS, training=True)
    for _ in range(5):
        grads = rng.normal(size=(4, 3)).astype(np.float32)
        half.push(IDS, grads.copy())
        single.push(IDS, grads.copy())
    tolerance = 0.02 if dtype == "bf16" else 0.003
    got, want = half.pull(IDS, training=False), single.pull(IDS, training=False)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)
    assert half.dtype == np.float32


@given(st.floats(width=32, allow_nan=False))
def test_bf16_rounds_as_torch_does(value: float) -> None:
    stored = narrow(np.array([[value]], np.float32), "bf16")
    assert widen(stored, "bf16")[0, 0] == torch.tensor(value).bfloat16().float().item()


def test_a_table_that_is_not_trainable_keeps_still() -> None:
    subject = table(trainable=False)
    subject.load(IDS[:2], np.ones((2, 3)))
    for _ in range(2):
        assert subject.pull(IDS, training=True).tolist() == [[1.0] * 3] * 2 + [[0.0] * 3] * 2
        subject.push(IDS, np.ones((4, 3)))
    assert len(subject) == 2


def test_an_unknown_argument_is_named() -> None:
    with pytest.raises(ConfigError, match="takes no 'momentun'; did you mean 'momentum'"):
        table(optim("momentum", momentun=0.9))


def test_a_dense_optimizer_is_not_for_tables() -> None:
    with pytest.raises(ConfigError, match="'asgd' is not an optimizer for tables"):
        TableSpec(name="t", dim=3, optimizer=optim("asgd"))
