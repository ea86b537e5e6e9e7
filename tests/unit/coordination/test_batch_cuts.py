from hypothesis import given
from hypothesis import strategies as st

from flambeau.coordination.batch_cuts import shard_pieces

shards = st.lists(st.integers(0, 5000), min_size=1, max_size=6)


@given(shards, st.integers(1, 50), st.integers(1, 40), st.none() | st.integers(1, 20))
def test_pieces_are_whole_batches_and_hold_every_row_once(
    rows: list[int], batch: int, wanted: int, window: int | None
) -> None:
    cut = shard_pieces(rows, batch, wanted, None if window is None else window * batch)
    for pieces, count in zip(cut, rows, strict=True):
        ends = [0, *(stop for _, stop in pieces)]
        assert [start for start, _ in pieces] == ends[:-1]
        assert ends[-1] == count
        assert all(start < stop for start, stop in pieces)
        assert all(stop % batch == 0 for _, stop in pieces[:-1])


@given(shards, st.integers(1, 50), st.integers(1, 40), st.none() | st.integers(1, 20))
def test_there_are_as_many_pieces_as_wanted_where_there_are_as_many_batches(
    rows: list[int], batch: int, wanted: int, window: int | None
) -> None:
    cut = shard_pieces(rows, batch, wanted, None if window is None else window * batch)
    batches = sum(-(-count // batch) for count in rows)
    assert sum(map(len, cut)) >= min(wanted, batches)


def test_many_shards_stay_whole() -> None:
    assert shard_pieces([1000] * 8, 10, 8, None) == [[(0, 1000)]] * 8


def test_a_large_shard_among_small_ones_is_cut() -> None:
    small, large = shard_pieces([10, 390], 10, 4, None)
    assert small == [(0, 10)]
    assert large == [(0, 100), (100, 200), (200, 300), (300, 390)]


def test_pieces_with_room_for_a_window_have_whole_windows() -> None:
    (pieces,) = shard_pieces([1000], 10, 4, 100)
    assert pieces == [(0, 200), (200, 400), (400, 600), (600, 800), (800, 1000)]


def test_a_window_is_cut_where_there_are_too_few_of_them() -> None:
    assert shard_pieces([80], 10, 4, 1000) == [[(0, 20), (20, 40), (40, 60), (60, 80)]]
