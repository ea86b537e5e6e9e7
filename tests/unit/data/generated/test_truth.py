"""Scores of the true probabilities."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.data.generated import ClickLog, Score, Truth
from flambeau.data.generated.truth import TruthScores
from flambeau.errors import ConfigError


def drawn(rows: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    probabilities = random.beta(1, 3, rows)
    return probabilities, random.random(rows) < probabilities


def scored(probabilities: np.ndarray, labels: np.ndarray, scoring: TruthScores) -> Score:
    for part in np.array_split(np.arange(len(labels)), 7):
        scoring.add(probabilities[part], labels[part])
    return scoring.score()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.5, 0.7]), st.booleans()), min_size=1))
def test_auc_is_the_share_of_pairs_in_the_right_order(rows: list[tuple[float, bool]]) -> None:
    ones = [p for p, label in rows if label]
    zeros = [p for p, label in rows if not label]
    pairs = [(a > b) + (a == b) / 2 for a in ones for b in zeros]
    found = scored(np.array([p for p, _ in rows]), np.array([y for _, y in rows]), TruthScores())
    assert found.auc == (pytest.approx(sum(pairs) / len(pairs), abs=1e-6) if pairs else None)


def test_logloss_and_counts() -> None:
    scoring = TruthScores()
    scoring.add(np.array([0.25, 0.5]), np.array([False, True]))
    expected = round(-(np.log(0.75) + np.log(0.5)) / 2, 6)
    assert scoring.score() == Score(rows=2, positives=1, auc=1.0, logloss=expected)


def test_without_rows_there_is_no_auc() -> None:
    assert TruthScores().score() == Score(rows=0, positives=0, auc=None, logloss=0.0)


def test_many_rows_are_scored_in_bins_as_exactly() -> None:
    data = drawn(50_000)
    exact, binned = scored(*data, TruthScores()), scored(*data, TruthScores(most_exact=10_000))
    assert binned.auc == pytest.approx(exact.auc, abs=2e-6)
    assert (binned.rows, binned.positives, binned.logloss) == (
        exact.rows,
        exact.positives,
        exact.logloss,
    )


def test_memory_is_bounded_by_folding_rows_into_bins() -> None:
    scoring = TruthScores(most_exact=1_000)
    for _ in range(10):
        scoring.add(*drawn(600))
    assert sum(len(labels) for _, labels in scoring._pieces) <= 1_000


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    score = Score(rows=2, positives=1, auc=0.5, logloss=0.7)
    truth = Truth(settings=ClickLog(rows=7), overall={"click": score}, by_day=({"click": score},))
    truth.write(tmp_path / "truth.json")
    assert Truth.read(tmp_path / "truth.json") == truth


def test_a_truth_with_an_unknown_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "truth.json").write_text('{"overal": {}}')
    with pytest.raises(ConfigError, match=r"truth\.json: unknown key 'overal'"):
        Truth.read(tmp_path / "truth.json")
