"""Ids divided among shards, and rows that come back in order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.parameter_server.partition import split
from flambeau.tables.index.hashing import shards_of

distinct = st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=60)
counts = st.integers(1, 5)


def as_ids(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.int64)


@given(distinct, counts)
def test_every_id_goes_to_the_shard_of_its_hash_in_the_order_of_the_batch(numbers, shards) -> None:
    ids = as_ids(numbers)
    owners, place = shards_of(ids, shards), split(ids, shards)
    for shard in range(shards):
        assert place.ids(shard).tolist() == ids[owners == shard].tolist()


@given(distinct, counts)
def test_rows_follow_their_ids(numbers, shards) -> None:
    ids = as_ids(numbers)
    place, rows = split(ids, shards), np.stack([ids, ~ids], axis=1)
    for shard in range(shards):
        assert place.rows(shard, rows)[:, 0].tolist() == place.ids(shard).tolist()
        assert place.rows(shard, rows)[:, 1].tolist() == (~place.ids(shard)).tolist()


@given(distinct, counts)
def test_merging_undoes_the_division(numbers, shards) -> None:
    ids = as_ids(numbers)
    place, rows = split(ids, shards), np.stack([ids, ~ids], axis=1)
    assert place.merge([place.rows(shard, rows) for shard in range(shards)]).tolist() == (
        rows.tolist()
    )


@pytest.mark.parametrize("shards", [1, 3])
def test_parts_can_be_sent_as_they_are(shards: int) -> None:
    ids = np.arange(100)
    place, rows = split(ids, shards), np.ones((100, 4), np.float32)
    for shard in range(shards):
        assert place.ids(shard).flags.c_contiguous
        assert place.rows(shard, rows).flags.c_contiguous
        assert place.rows(shard, rows).dtype == np.float32
