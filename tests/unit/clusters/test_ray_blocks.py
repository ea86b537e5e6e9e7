"""Which rows of a Ray Dataset go to which agent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.clusters.ray.blocks import split_rows


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 8))
def test_each_row_goes_to_one_agent_in_order_and_evenly(counts: list[int], agents: int) -> None:
    split = split_rows(counts, agents)
    rows = [
        (block, row)
        for part in split
        for block, offset, length in part
        for row in range(offset, offset + length)
    ]
    assert rows == [(block, row) for block, count in enumerate(counts) for row in range(count)]
    sizes = [sum(length for _, _, length in part) for part in split]
    assert len(split) == agents
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("agents", [1, 3])
def test_nobody_is_given_a_part_without_rows(agents: int) -> None:
    assert all(length for part in split_rows([0, 5, 0, 1], agents) for _, _, length in part)
