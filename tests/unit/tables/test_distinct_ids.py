import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.tables.index import unique_ids
from flambeau.tables.index.unique_ids import Fold

FOLD = Fold()
ids = st.lists(st.one_of(st.sampled_from([-(2**63), 2**63 - 1]), st.integers(-9, 9)), max_size=50)


@given(ids)
def test_folding_keeps_each_id_once_in_order_of_appearance(values: list[int]) -> None:
    array = np.array(values, dtype=np.int64)
    unique, inverse = FOLD(array)
    assert unique.tolist() == list(dict.fromkeys(values))
    assert unique[inverse].tolist() == values


def test_it_continues_when_its_marks_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unique_ids, "_LAST_MARK", 3)
    fold = Fold()
    for values in ([1, 1, 2], [2, 3, 2], [3, 1, 1], [1, 2, 1], [2, 2, 3], [1, 3, 3]):
        unique, inverse = fold(np.array(values))
        assert unique.tolist() == list(dict.fromkeys(values))
        assert unique[inverse].tolist() == values
