from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.coordination.plans import HomePlan, IndexedPlan, StreamedPlan

indexed = st.builds(
    IndexedPlan,
    total=st.integers(1, 120),
    batch_size=st.integers(1, 20),
    workers=st.integers(1, 5),
    seed=st.integers(0, 99),
    shuffle=st.booleans(),
)
streamed = st.builds(
    StreamedPlan,
    shard_rows=st.lists(st.integers(0, 40), min_size=1, max_size=8).map(tuple),
    batch_size=st.integers(1, 20),
    workers=st.integers(1, 5),
    seed=st.integers(0, 99),
    shuffle=st.booleans(),
)


def epoch_rows(plan: IndexedPlan, epoch: int = 0, start: int = 0) -> list[int]:
    return [
        row
        for step in range(plan.steps(start))
        for worker in range(plan.workers)
        for row in plan.indices(epoch, step, worker, start).tolist()
    ]


@settings(max_examples=30)
@given(indexed, st.integers(0, 3))
def test_every_row_is_there_once_per_epoch(plan: IndexedPlan, epoch: int) -> None:
    assert sorted(epoch_rows(plan, epoch)) == list(range(plan.total))


@settings(max_examples=30)
@given(indexed)
def test_n_workers_see_at_each_step_what_one_with_the_n_fold_batch_sees(plan: IndexedPlan) -> None:
    one = replace(plan, workers=1, batch_size=plan.batch_size * plan.workers)
    assert one.steps() == plan.steps()
    for step in range(plan.steps()):
        parts = [plan.indices(2, step, worker) for worker in range(plan.workers)]
        assert np.concatenate(parts).tolist() == one.indices(2, step, 0).tolist()


@settings(max_examples=30)
@given(indexed)
def test_counts_agree_with_the_rows(plan: IndexedPlan) -> None:
    for step in range(plan.steps()):
        counts = [len(plan.indices(0, step, worker)) for worker in range(plan.workers)]
        assert counts == [plan.rows(step, worker) for worker in range(plan.workers)]
        assert sum(counts) == plan.all_rows(step)
        assert max(counts) - min(counts) <= 1


@settings(max_examples=30)
@given(indexed, st.data())
def test_many_steps_at_once_are_the_same_as_one_by_one(
    plan: IndexedPlan, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, plan.steps() - 1))
    worker = data.draw(st.integers(0, plan.workers - 1))
    together = plan.indices_of_steps(1, first, plan.steps(), worker)
    alone = [plan.indices(1, step, worker) for step in range(first, plan.steps())]
    assert [rows.tolist() for rows in together] == [rows.tolist() for rows in alone]


@settings(max_examples=30)
@given(indexed, st.integers(1, 7), st.data())
def test_other_workers_go_on_with_exactly_the_rest(
    plan: IndexedPlan, workers: int, data: st.DataObject
) -> None:
    done = data.draw(st.integers(0, plan.steps()))
    before = [
        row
        for step in range(done)
        for worker in range(plan.workers)
        for row in plan.indices(4, step, worker).tolist()
    ]
    after = epoch_rows(replace(plan, workers=workers), 4, start=len(before))
    assert sorted(before + after) == list(range(plan.total))


@settings(max_examples=30)
@given(indexed)
def test_drop_last_leaves_only_whole_batches(plan: IndexedPlan) -> None:
    plan = replace(plan, drop_last=True)
    sizes = {plan.rows(s, w) for s in range(plan.steps()) for w in range(plan.workers)}
    assert sizes <= {plan.batch_size}
    assert plan.steps() == plan.total // (plan.batch_size * plan.workers)


def test_without_shuffle_rows_come_in_their_order() -> None:
    plan = IndexedPlan(10, batch_size=2, workers=2, seed=0, shuffle=False)
    assert plan.indices(3, 1, 1).tolist() == [6, 7]


def test_the_order_depends_on_seed_and_epoch() -> None:
    plan = IndexedPlan(100, batch_size=10, workers=1, seed=0)
    orders = [
        epoch_rows(plan, 0),
        epoch_rows(plan, 1),
        epoch_rows(replace(plan, seed=1), 0),
    ]
    assert len({tuple(order) for order in orders}) == 3


def rows_of(plan: StreamedPlan, epoch: int) -> list[list[tuple[int, int]]]:
    return [
        [(p.shard, row) for p in plan.pieces(epoch, worker) for row in range(p.start, p.stop)]
        for worker in range(plan.workers)
    ]


@settings(max_examples=30)
@given(streamed, st.integers(0, 3))
def test_streamed_workers_read_every_row_once(plan: StreamedPlan, epoch: int) -> None:
    read = Counter(row for worker in rows_of(plan, epoch) for row in worker)
    every = {(shard, row) for shard, rows in enumerate(plan.shard_rows) for row in range(rows)}
    assert read == Counter(every)


@settings(max_examples=30)
@given(streamed)
def test_streamed_counts_agree_with_the_pieces(plan: StreamedPlan) -> None:
    for worker, rows in enumerate(rows_of(plan, 1)):
        counts = [plan.rows(step, worker) for step in range(plan.steps())]
        assert sum(counts) == len(rows)
        assert all(count == plan.batch_size for count in counts[:-2])
    for step in range(plan.steps()):
        workers = range(plan.workers)
        assert plan.all_rows(step) == sum(plan.rows(step, worker) for worker in workers)


@settings(max_examples=30)
@given(streamed)
def test_streamed_workers_have_as_many_rows_but_for_one(plan: StreamedPlan) -> None:
    counts = [len(rows) for rows in rows_of(plan, 0)]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(("rows", "steps"), [(3, 1), (4, 1), (7, 1), (8, 2)])
def test_what_fills_no_batch_is_left_out_when_possible(rows: int, steps: int) -> None:
    plans = [
        IndexedPlan(2 * rows, 4, 2, 0, drop_last="when_possible"),
        StreamedPlan((2 * rows,), 4, 2, 0, drop_last="when_possible"),
        HomePlan(((rows,), (1, rows)), (0, 1), 4, 0, drop_last="when_possible"),
    ]
    assert [plan.steps() for plan in plans] == [steps] * 3


@settings(max_examples=30)
@given(streamed)
def test_streamed_drop_last_leaves_only_whole_batches(plan: StreamedPlan) -> None:
    plan = replace(plan, drop_last=True)
    sizes = {plan.rows(s, w) for s in range(plan.steps()) for w in range(plan.workers)}
    assert sizes <= {plan.batch_size}


def test_shards_are_read_in_another_order_in_each_epoch() -> None:
    plan = StreamedPlan((5,) * 20, batch_size=4, workers=1, seed=0)
    orders = [[piece.shard for piece in plan.pieces(epoch, 0)] for epoch in range(2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == list(range(20))


def test_without_shuffle_shards_come_in_their_order() -> None:
    plan = StreamedPlan((3, 3, 4), batch_size=4, workers=2, seed=0, shuffle=False)
    pieces = [[(p.shard, p.start, p.stop) for p in plan.pieces(7, worker)] for worker in (0, 1)]
    assert pieces == [[(0, 0, 3), (1, 0, 2)], [(1, 2, 3), (2, 0, 4)]]


@given(
    homes=st.lists(st.lists(st.integers(1, 40), max_size=4), min_size=1, max_size=4).filter(any),
    batch_size=st.integers(1, 16),
    shuffle=st.booleans(),
)
def test_agents_with_one_worker_each(
    homes: list[list[int]], batch_size: int, shuffle: bool
) -> None:
    agents = tuple(range(len(homes)))
    plan = HomePlan(tuple(map(tuple, homes)), agents, batch_size, seed=1, shuffle=shuffle)
    numbers = iter(range(100))
    for worker, rows in enumerate(homes):
        own = {next(numbers): count for count in rows}
        pieces = plan.pieces(0, worker)
        assert {piece.shard: piece.stop for piece in pieces} == own
        assert all(piece.start == 0 for piece in pieces)
    assert sum(map(plan.all_rows, range(plan.steps()))) == sum(map(sum, homes))
    assert plan.all_rows(plan.steps()) == 0
    dropping = replace(plan, drop_last=True)
    full = [dropping.all_rows(step) for step in range(dropping.steps())]
    assert full == [batch_size * len(homes)] * len(full)


@given(
    homes=st.lists(st.lists(st.integers(0, 40), max_size=4), min_size=1, max_size=3).filter(
        lambda homes: any(map(sum, homes))
    ),
    workers=st.integers(1, 3),
    batch_size=st.integers(1, 16),
    shuffle=st.booleans(),
)
def test_workers_of_an_agent_read_each_of_its_rows_once(
    homes: list[list[int]], workers: int, batch_size: int, shuffle: bool
) -> None:
    agents = tuple(agent for agent in range(len(homes)) for _ in range(workers))
    plan = HomePlan(tuple(map(tuple, homes)), agents, batch_size, seed=1, shuffle=shuffle)
    shards = [(agent, rows) for agent, counts in enumerate(homes) for rows in counts]
    for epoch in range(2):
        read = Counter[tuple[int, int]]()
        for worker, agent in enumerate(agents):
            own = [
                (piece.shard, row)
                for piece in plan.pieces(epoch, worker)
                for row in range(piece.start, piece.stop)
            ]
            assert all(shards[shard][0] == agent for shard, _ in own)
            assert 0 <= len(own) - sum(homes[agent]) // workers <= 1
            read.update(own)
        assert read == Counter(
            (n, row) for n, (_, rows) in enumerate(shards) for row in range(rows)
        )
    assert sum(map(plan.all_rows, range(plan.steps()))) == sum(map(sum, homes))
    assert plan.all_rows(plan.steps()) == 0


def test_two_workers_of_an_agent_cut_its_order_in_half() -> None:
    plan = HomePlan(((3, 3, 4), (6,)), (0, 0, 1, 1), batch_size=4, seed=0, shuffle=False)
    pieces = [[(p.shard, p.start, p.stop) for p in plan.pieces(0, worker)] for worker in range(4)]
    assert pieces == [[(0, 0, 3), (1, 0, 2)], [(1, 2, 3), (2, 0, 4)], [(3, 0, 3)], [(3, 3, 6)]]
    assert [plan.all_rows(step) for step in range(plan.steps())] == [4 + 4 + 3 + 3, 2]


def test_the_order_of_one_worker_for_each_agent_is_that_of_earlier_versions() -> None:
    plan = HomePlan(((5, 6, 7, 8), (9, 10, 11, 12)), (0, 1), batch_size=4, seed=3)
    orders = [[piece.shard for piece in plan.pieces(2, worker)] for worker in (0, 1)]
    assert orders == [[0, 3, 2, 1], [6, 5, 7, 4]]
