"""recall@k and NDCG@k against what they say."""

import itertools
import math
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.config import JobSettings
from flambeau.config.known_names import ranked_name
from flambeau.data.jagged import from_lists
from flambeau.errors import ConfigError, DataError
from flambeau.training.best import Best
from flambeau.training.metrics import Metric, build_metrics, higher_is_better
from flambeau.training.retrieval import retrieval_metrics

ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=9
)


def metric(name: str, **settings: Any) -> Metric:
    return build_metrics([name], loss_name="bce", exact_rows=100, **settings)[name]


def given_rows(name: str, rows: list[tuple[int, int, int]]) -> Metric:
    found = metric(name)
    group, score, label = (torch.tensor([row[i] for row in rows]) for i in range(3))
    found.update(score.float(), label, None, group)
    return found


def plain(name: str, k: int, ranked: list[int]) -> float:
    """The value for labels in the order of their scores."""
    if name == "recall":
        return sum(ranked[:k]) / sum(ranked)
    gain = sum(label / math.log2(place + 2) for place, label in enumerate(ranked[:k]))
    best = sum(1 / math.log2(place + 2) for place in range(min(k, sum(ranked))))
    return gain / best


def plain_mean(name: str, k: int, rows: list[tuple[int, int, int]]) -> float:
    """The mean over groups of the mean over all orders of equal scores."""
    values = []
    for group in sorted({row[0] for row in rows}):
        own = [row for row in rows if row[0] == group]
        if not any(row[2] for row in own):
            continue
        orders = [
            [row[2] for row in order]
            for order in itertools.permutations(own)
            if all(a[1] >= b[1] for a, b in itertools.pairwise(order))
        ]
        values.append(fmean(plain(name, k, order) for order in orders))
    return fmean(values) if values else math.nan


@pytest.mark.parametrize("name", ["recall", "ndcg"])
@settings(max_examples=40, deadline=None)
@given(rows=ROWS.filter(lambda rows: len(rows) <= 7), k=st.integers(1, 4))
def test_within_groups_it_is_the_mean_over_all_orders_of_ties(
    name: str, rows: list[tuple[int, int, int]], k: int
) -> None:
    found = given_rows(f"{name}@{k}", rows).compute()
    assert found == pytest.approx(plain_mean(name, k, rows), nan_ok=True)


@pytest.mark.parametrize("name", ["recall@2", "ndcg@2"])
@settings(max_examples=20, deadline=None)
@given(rows=ROWS, cut=st.integers(0, 9))
def test_workers_together_have_the_value_of_one(
    name: str, rows: list[tuple[int, int, int]], cut: int
) -> None:
    parts = [given_rows(name, part) for part in (rows[:cut], rows[cut:]) if part]
    whole = given_rows(name, rows)
    parts[0].merge([part.state() for part in parts])
    assert parts[0].compute() == pytest.approx(whole.compute(), nan_ok=True)


def test_labels_may_say_how_much_a_row_is_worth() -> None:
    found = metric("ndcg@2")
    found.update(
        torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 3.0]), None, torch.zeros(3).long()
    )
    assert found.compute() == pytest.approx(1.0 / (3.0 + 1.0 / math.log2(3)))


def test_groups_count_with_the_mean_weight_of_their_rows() -> None:
    found = metric("recall@1")
    label, group = torch.tensor([1, 0, 0, 1]), torch.tensor([1, 1, 2, 2])
    found.update(torch.tensor([2.0, 1.0, 2.0, 1.0]), label, torch.tensor([3.0, 3, 1, 1]), group)
    assert found.compute() == pytest.approx(0.75)


def test_without_groups_each_row_ranks_the_classes() -> None:
    output = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 2.0], [3.0, 2.0, 1.0]])
    label = torch.tensor([0, 1, 2])
    recall, ndcg = metric("recall@1"), metric("ndcg@2")
    recall.update(output, label)
    ndcg.update(output, label)
    assert recall.compute() == pytest.approx((1.0 + 0.5 + 0.0) / 3)
    second = 1 / math.log2(3)
    assert ndcg.compute() == pytest.approx((1.0 + (1.0 + second) / 2 + 0.0) / 3)


def test_scores_that_are_nan_make_it_nan() -> None:
    found = metric("recall@1")
    found.update(torch.tensor([math.nan, 1.0]), torch.tensor([1, 0]), None, torch.zeros(2).long())
    assert math.isnan(found.compute())


def test_one_output_for_each_row_needs_groups() -> None:
    with pytest.raises(ConfigError, match="metric 'recall@3' needs group="):
        metric("recall@3").update(torch.tensor([1.0]), torch.tensor([1]))


@pytest.mark.parametrize("name", ["recall@0", "recall@", "recall@x", "auc@3", "recall@1.5"])
def test_names_that_say_no_number_are_unknown(name: str) -> None:
    assert ranked_name(name) is None
    job = {"model": {"path": "a:b"}, "train": {"kind": "files", "path": "x"}}
    with pytest.raises(ConfigError, match="unknown metric"):
        JobSettings.parse({**job, "metrics": [name]}, "job")
    with pytest.raises(ConfigError, match="unknown metric"):
        metric(name)


def test_higher_is_better() -> None:
    assert higher_is_better("recall@20")
    best = Best("ndcg@5", "auto")
    assert best.metric == "ndcg@5"


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 99), k=st.integers(1, 6), items=st.integers(1, 9), hide=st.booleans())
def test_full_retrieval_is_what_a_plain_ranking_gives(
    seed: int, k: int, items: int, hide: bool
) -> None:
    rng = np.random.default_rng(seed)
    queries = torch.from_numpy(rng.normal(size=(5, 3)))
    vectors = torch.from_numpy(rng.normal(size=(items, 3)))
    truth = [rng.choice(items, rng.integers(0, items + 1)).tolist() for _ in range(5)]
    seen = [rng.choice(items, rng.integers(0, items + 1)).tolist() for _ in range(5)]
    seen = seen if hide else [[]] * 5
    found = retrieval_metrics(queries, vectors, truth, k, seen=seen if hide else None)
    for name in ("recall", "ndcg"):
        values = []
        for query, right, hidden in zip(queries, truth, seen, strict=True):
            order = (vectors @ query).argsort(descending=True).tolist()
            ranked = [int(item in right) for item in order if item in right or item not in hidden]
            values += [plain(name, k, ranked)] if right else []
        assert found[f"{name}@{k}"] == pytest.approx(
            fmean(values) if values else math.nan, nan_ok=True
        )


def test_pieces_of_queries_and_items_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, items = torch.randn(7, 3), torch.randn(11, 3)
    truth, seen = torch.arange(7), torch.randint(11, (7, 4))
    whole = retrieval_metrics(queries, items, truth, (1, 5), seen=seen)
    monkeypatch.setattr("flambeau.training.retrieval._QUERIES", 2)
    monkeypatch.setattr("flambeau.training.retrieval._SCORES", 8)
    assert retrieval_metrics(queries, items, truth, (1, 5), seen=seen) == pytest.approx(whole)
    assert set(whole) == {"recall@1", "ndcg@1", "recall@5", "ndcg@5"}


def test_queries_and_truth_that_do_not_fit_are_refused() -> None:
    queries, items = torch.randn(2, 3), torch.randn(4, 3)
    with pytest.raises(DataError, match="0 to 3"):
        retrieval_metrics(queries, items, torch.tensor([0, 4]))
    with pytest.raises(DataError, match="truth for 1 queries, and there are 2"):
        retrieval_metrics(queries, items, from_lists([[0]]))
    with pytest.raises(DataError, match="seen names item 4"):
        retrieval_metrics(queries, items, torch.tensor([0, 1]), seen=[[0], [4]])
    with pytest.raises(DataError, match="of the same length"):
        retrieval_metrics(queries, torch.randn(4, 2), torch.tensor([0, 1]))
    with pytest.raises(DataError, match="k=0"):
        retrieval_metrics(queries, items, torch.tensor([0, 1]), 0)
