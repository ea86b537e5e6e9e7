"""SparseEmbedding against torch's own embeddings, in float64."""

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matrix_tables import SPEC, attached, dense_gradient, matrix
from torch import Tensor, nn

from flambeau.config.tables import Initializer, TableSpec
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.errors import ModelError

WEIGHT = matrix()
BAGS = st.lists(st.lists(st.integers(0, 7), max_size=5), max_size=6)
SHAPES = st.lists(st.integers(0, 3), max_size=3)


def flat(bags: list[list[int]]) -> tuple[Tensor, Tensor]:
    """The ids of bags, and where each starts."""
    ids = torch.tensor([id_ for bag in bags for id_ in bag], dtype=torch.int64)
    lengths = torch.tensor([0, *map(len, bags)])
    return ids, lengths.cumsum(0)[:-1]


def upstream(like: Tensor) -> Tensor:
    """Some gradient for an output."""
    return torch.randn(like.shape, dtype=like.dtype, generator=torch.Generator().manual_seed(1))


def ids_of(shape: list[int]) -> Tensor:
    return torch.randint(0, 8, shape, generator=torch.Generator().manual_seed(2))


@settings(max_examples=40)
@given(SHAPES)
def test_without_pooling_it_is_nn_embedding(shape: list[int]) -> None:
    ids = ids_of(shape)
    theirs = nn.Embedding(8, 3, _weight=torch.tensor(WEIGHT))
    ours = attached(WEIGHT)
    expected, found = theirs(ids), ours(ids)
    assert torch.equal(found, expected)
    expected.backward(upstream(expected))
    found.backward(upstream(found))
    torch.testing.assert_close(dense_gradient(ours, 8), theirs.weight.grad)


@pytest.mark.parametrize("include_last", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@settings(max_examples=40)
@given(bags=BAGS.filter(lambda bags: any(bags)))
def test_bags_are_those_of_nn_embedding_bag(
    mode: Any, include_last: bool, bags: list[list[int]]
) -> None:
    ids, offsets = flat(bags)
    if include_last:
        offsets = torch.cat([offsets, torch.tensor([len(ids)])])
    theirs = nn.EmbeddingBag(
        8, 3, mode=mode, _weight=torch.tensor(WEIGHT), include_last_offset=include_last
    )
    ours = attached(WEIGHT, mode, include_last_offset=include_last)
    expected, found = theirs(ids, offsets), ours(ids, offsets)
    torch.testing.assert_close(found, expected)
    expected.backward(upstream(expected))
    found.backward(upstream(found))
    torch.testing.assert_close(dense_gradient(ours, 8), theirs.weight.grad)


@settings(max_examples=40)
@given(bags=BAGS.filter(lambda bags: any(bags)))
def test_weighted_sums_and_the_gradients_of_weights_are_torchs(bags: list[list[int]]) -> None:
    ids, offsets = flat(bags)
    own, other = (upstream(ids.double()).requires_grad_() for _ in range(2))
    theirs = nn.EmbeddingBag(8, 3, mode="sum", _weight=torch.tensor(WEIGHT))
    ours = attached(WEIGHT, "sum")
    expected, found = theirs(ids, offsets, other), ours(ids, offsets, own)
    torch.testing.assert_close(found, expected)
    expected.backward(upstream(expected))
    found.backward(upstream(found))
    torch.testing.assert_close(dense_gradient(ours, 8), theirs.weight.grad)
    torch.testing.assert_close(own.grad, other.grad)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@settings(max_examples=40)
@given(shape=st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_the_last_dimension_is_pooled(mode: Any, shape: list[int]) -> None:
    ids = ids_of(shape)
    lone = nn.Embedding(8, 3, _weight=torch.tensor(WEIGHT))
    ours = attached(WEIGHT, mode)
    expected = _pooled(lone(ids), mode)
    found = ours(ids)
    torch.testing.assert_close(found, expected)
    if mode != "max":  # amax shares the gradient of ties
        expected.backward(upstream(expected))
        found.backward(upstream(found))
        torch.testing.assert_close(dense_gradient(ours, 8), lone.weight.grad)


def _pooled(rows: Tensor, mode: str) -> Tensor:
    if rows.shape[-2] == 0 or mode == "sum":
        return rows.sum(-2)
    return rows.mean(-2) if mode == "mean" else rows.amax(-2)


@settings(max_examples=40)
@given(bags=BAGS)
def test_bags_without_pooling_are_padded_and_masked(bags: list[list[int]]) -> None:
    ids, offsets = flat(bags)
    ours = attached(WEIGHT)
    rows, mask = ours(ids, offsets)
    lone = nn.Embedding(8, 3, _weight=torch.tensor(WEIGHT))
    assert mask.sum(1).tolist() == [len(bag) for bag in bags]
    assert rows.shape == (len(bags), max(map(len, bags), default=0), 3)
    assert torch.equal(rows[mask], lone(ids))
    assert not rows[~mask].any()
    given_ = upstream(rows)
    rows.backward(given_)
    lone(ids).backward(given_[mask])
    torch.testing.assert_close(dense_gradient(ours, 8), lone.weight.grad)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_no_ids_at_all_are_empty_bags(mode: Any) -> None:
    ours = attached(WEIGHT, mode)
    found = ours(torch.empty(0, dtype=torch.int64), torch.zeros(4, dtype=torch.int64))
    assert torch.equal(found, torch.zeros(4, 3, dtype=torch.float64))
    found.sum().backward()
    assert ours.lookups.gradients()[0].grads.shape == (0, 3)


def test_results_may_be_changed_in_place() -> None:
    ours = attached(WEIGHT)
    found = ours(torch.tensor([1, 2]))
    found *= 2
    assert torch.equal(found, 2 * torch.tensor(WEIGHT[1:3]))
    assert torch.equal(ours(torch.tensor([1, 2])), torch.tensor(WEIGHT[1:3]))


def test_single_precision_tables_give_float32() -> None:
    module = SparseEmbedding(TableSpec("t", 2), "mean").eval()
    assert module(torch.tensor([[1, 2]])).dtype is torch.float32


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
@pytest.mark.parametrize("pooling", ["none", "sum"])
def test_ids_of_fewer_bits_are_the_same_ids(pooling: Any, dtype: torch.dtype) -> None:
    ids = torch.tensor([[1, 2], [2, 7]])
    narrow, wide = attached(WEIGHT, pooling), attached(WEIGHT, pooling)
    found, expected = narrow(ids.to(dtype)), wide(ids)
    assert torch.equal(found, expected)
    found.backward(upstream(found))
    expected.backward(upstream(expected))
    assert torch.equal(dense_gradient(narrow, 8), dense_gradient(wide, 8))


IDS = torch.arange(6)
TWO = torch.tensor([0, 3])


@pytest.mark.parametrize(
    ("pooling", "arguments", "message"),
    [
        ("none", ([1, 2],), "ids are a list; give an int64 tensor"),
        ("none", (IDS.float(),), "ids are torch.float32, not int64: convert the column"),
        ("sum", (IDS.bool(),), "ids are torch.bool, not int64: convert the column"),
        ("sum", (IDS.double(),), "ids are torch.float64, not int64: convert the column"),
        ("sum", (torch.tensor(3),), "one id without dimensions cannot be pooled"),
        ("sum", (IDS.view(2, 3), TWO), r"ids of shape \(2, 3\) with offsets; give 1-D ids"),
        ("none", (IDS.view(2, 3), TWO), r"ids of shape \(2, 3\) with offsets; give 1-D ids"),
        ("sum", (IDS, TWO.int()), "offsets are torch.int32 of shape .*; give torch.int64"),
        ("sum", (IDS, TWO[None]), r"offsets are torch.int64 of shape \(1, 2\)"),
        ("sum", (IDS, torch.tensor([0, 4, 2])), r"offsets decrease at position 2: \[4, 2\]"),
        (
            "sum",
            (IDS, torch.tensor([1, 2])),
            r"offsets begin with \[1\]; the first bag starts at 0",
        ),
        ("sum", (IDS, torch.tensor([0, 7])), "offsets end with 7, behind the last of 6 ids"),
        ("sum", (IDS, TWO[:0]), r"offsets begin with \[\]; the first bag starts at 0"),
        ("mean", (IDS, TWO, torch.ones(6)), "weights are for pooling='sum', not 'mean'"),
        ("none", (IDS, None, torch.ones(6)), "weights are for pooling='sum', not 'none'"),
        ("sum", (IDS, TWO, torch.ones(5)), r"weights have shape \(5,\), ids \(6,\)"),
        ("sum", (IDS, TWO, torch.ones(6)), "weights are torch.float32; give torch.float64"),
    ],
)
def test_what_is_wrong_with_the_arguments_is_said(
    pooling: Any, arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ModelError, match=f"table 't': {message}"):
        attached(WEIGHT, pooling)(*arguments)


def test_the_last_offset_is_the_number_of_ids() -> None:
    module = attached(WEIGHT, "sum", include_last_offset=True)
    with pytest.raises(ModelError, match=r"offsets end with 3; .* the number of ids, 6"):
        module(IDS, TWO)


def test_a_wrong_call_is_not_a_look_up() -> None:
    module = attached(WEIGHT, "sum")
    with pytest.raises(ModelError):
        module(IDS, torch.tensor([0, 7]))
    assert module.lookups is not None
    assert module.lookups.gradients() == []


def test_an_unknown_pooling_is_refused() -> None:
    with pytest.raises(ModelError, match="pooling='maen' is not known; did you mean 'mean'"):
        SparseEmbedding(SPEC, "maen")  # type: ignore[arg-type]


def test_without_a_table_it_cannot_train() -> None:
    with pytest.raises(ModelError, match=r"'t' is not attached.*train_in_process\(model"):
        SparseEmbedding(SPEC)(IDS)


def test_without_a_table_every_id_reads_as_the_default_row() -> None:
    first = Initializer(kind="constant", value=0.5)
    module = SparseEmbedding(TableSpec("t", 2, initializer=first), None)
    with torch.no_grad():
        assert module(torch.tensor([4, -9])).tolist() == [[0.5, 0.5]] * 2
    assert module.eval()(IDS.view(2, 3)).shape == (2, 3, 2)


def test_only_training_with_gradients_is_a_training_look_up() -> None:
    module = attached(WEIGHT)
    assert module.lookups is not None
    module(IDS)
    with torch.no_grad():
        module(IDS)
    module.eval()(IDS)
    pulled = module.lookups.backend.pulled  # type: ignore[attr-defined]
    assert [training for _, training in pulled] == [True, False, False]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_leave_the_table_behind(copied: Any) -> None:
    module = attached(WEIGHT, "max", "column")
    twin = copied(nn.ModuleList([module]))[0]
    assert twin.lookups is None
    assert module.lookups is not None
    assert (twin.spec, twin.pooling, twin.prefetch) == (SPEC, "max", "column")


def test_it_shows_table_dimension_and_pooling() -> None:
    assert repr(SparseEmbedding(SPEC, "sum")) == (
        "SparseEmbedding(table='t', dim=3, pooling='sum')"
    )


def test_a_compiled_model_looks_up_as_before() -> None:
    module = attached(WEIGHT, "sum")
    model = torch.compile(nn.Sequential(module, nn.Flatten()), backend="eager")
    found = model(IDS.view(2, 3))
    assert torch.equal(found, torch.tensor(WEIGHT[:6]).view(2, 3, 3).sum(1))
    found.sum().backward()
    assert dense_gradient(module, 8)[:6].tolist() == [[1.0] * 3] * 6


def test_it_has_no_state_of_its_own() -> None:
    assert not attached(WEIGHT).state_dict()
