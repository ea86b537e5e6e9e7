import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.tables.index import id_positions
from flambeau.tables.index.id_positions import IdPositions

ids = st.lists(st.integers(-20, 20) | st.sampled_from([-(2**63), 2**63 - 1]), unique=True)


def as_array(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


@given(st.lists(st.tuples(ids, ids), max_size=6))
def test_places_are_those_of_numpy(questions: list[tuple[list[int], list[int]]]) -> None:
    find = IdPositions()
    for some, others in questions:
        expected = np.flatnonzero(np.isin(as_array(some), as_array(others)))
        np.testing.assert_array_equal(find.places(as_array(some), as_array(others)), expected)


@pytest.mark.parametrize("copied", [False, True])
def test_the_same_question_is_answered_from_memory(
    monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    find, some, others = IdPositions(), np.arange(5), np.arange(3, 9)
    first = find.places(some, others)
    monkeypatch.setattr(find, "_slots", None)
    again = find.places(some.copy(), others.copy()) if copied else find.places(some, others)
    assert again is first


def test_it_does_not_remember_everything() -> None:
    find = IdPositions()
    for number in range(2 * id_positions.REMEMBERED):
        find.places(np.array([number]), np.array([number]))
    assert len(find._known) == id_positions.REMEMBERED
