"""Negotiation among simulated ranks: order, cache, mismatches, groups, joining and stalls."""

from typing import Any

import pytest

from flambeau.compat.horovod.execution.fusion import fused
from flambeau.compat.horovod.negotiation.messages import ALL, Agreed, Agreement, Kind, Request
from flambeau.compat.horovod.negotiation.negotiator import CROSSED_SECONDS, Negotiator
from flambeau.errors import ProtocolError


def request(name: str = "x", kind: Kind = "allreduce", **values: Any) -> Request:
    return Request(kind, name, **{"dtype": "float32", "shape": [3], **values})


def taken(negotiator: Negotiator) -> list[Agreement | int]:
    agreed = negotiator.take()
    return [] if agreed is None else agreed.items


def agreement(negotiator: Negotiator) -> Agreement:
    (item,) = taken(negotiator)
    assert isinstance(item, Agreement)
    return item


def names(items: list[Agreement | int]) -> list[str]:
    return [item.request.name for item in items if isinstance(item, Agreement)]


def agreed_by_all(negotiator: Negotiator, *requests: Request) -> Agreement:
    for rank, each in enumerate(requests):
        negotiator.submit(rank, [each], 0.0)
    return agreement(negotiator)


def test_names_are_agreed_in_the_order_in_which_they_become_complete() -> None:
    negotiator = Negotiator(2)
    negotiator.submit(0, [request("a"), request("b"), request("c")], 0.0)
    assert taken(negotiator) == []
    negotiator.submit(1, [request("c"), request("a")], 0.0)
    assert names(taken(negotiator)) == ["c", "a"]
    negotiator.submit(1, [request("b")], 0.0)
    assert names(taken(negotiator)) == ["b"]


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (request(), request(shape=[4]), "shapes of 'x': rank 0 has [3], rank 1 has [4]"),
        (request(), request(dtype="int32"), "data types"),
        (request(), request(op=3), "reduction operations of 'x': rank 0 has Sum, rank 1 has Min"),
        (request(), request(prescale=2.0), "factors"),
        (request(), request(kind="allgather"), "collective operations"),
        (request(), request(group="g", group_size=2), "groups"),
        (request(kind="broadcast"), request(kind="broadcast", root=1), "root ranks"),
        (
            request(kind="allgather", shape=[1, 2]),
            request(kind="allgather", shape=[1, 3]),
            "shapes",
        ),
        (request(kind="alltoall", shape=[1]), request(kind="alltoall", shape=[1, 1]), "dimensions"),
        (request(kind="broadcast", root=9), request(kind="broadcast", root=9), "from rank 9"),
    ],
)
def test_what_differs_is_an_error(first: Request, second: Request, words: str) -> None:
    error = agreed_by_all(Negotiator(2), first, second).error
    assert words in error


def test_an_error_does_not_depend_on_who_came_first() -> None:
    one, other = Negotiator(2), Negotiator(2)
    for negotiator, order in ((one, (0, 1)), (other, (1, 0))):
        for rank in order:
            negotiator.submit(rank, [request(shape=[3 + rank])], 0.0)
    assert agreement(one).error == agreement(other).error


def test_gathering_tells_the_rows_of_each_rank() -> None:
    rows = [request(kind="allgather", shape=[rank, 2]) for rank in (4, 0, 7)]
    assert agreed_by_all(Negotiator(3), *rows).sizes == [4, 0, 7]


def test_a_request_can_be_repeated_by_its_number() -> None:
    negotiator = Negotiator(2)
    number = agreed_by_all(negotiator, request(), request()).cache_id
    for rank in range(2):
        negotiator.repeat(rank, ALL, [number], 0.0)
    assert taken(negotiator) == [number]


def test_numbers_are_agreed_in_their_order_as_soon_as_all_ranks_repeat_them() -> None:
    negotiator = Negotiator(2)
    numbers = [
        agreed_by_all(negotiator, request(name), request(name)).cache_id for name in ("a", "b", "c")
    ]
    negotiator.repeat(0, ALL, numbers[::-1], 0.0)
    negotiator.repeat(1, ALL, numbers[1:], 0.0)
    assert taken(negotiator) == numbers[1:]
    negotiator.repeat(1, ALL, numbers[:1], 0.0)
    assert taken(negotiator) == numbers[:1]


def test_a_repeated_group_is_agreed_as_a_whole() -> None:
    negotiator = Negotiator(2)
    members = [request(name, group="g", group_size=2) for name in ("a", "b")]
    for rank in range(2):
        negotiator.submit(rank, members, 0.0)
    numbers = [item.cache_id for item in taken(negotiator) if isinstance(item, Agreement)]
    negotiator.repeat(0, ALL, numbers, 0.0)
    negotiator.repeat(1, ALL, numbers[:1], 0.0)
    assert taken(negotiator) == []
    negotiator.repeat(1, ALL, numbers[1:], 0.0)
    assert taken(negotiator) == numbers


def test_what_waits_is_not_lost_when_the_cache_forgets_it() -> None:
    negotiator = Negotiator(2, capacity=1)
    number = agreed_by_all(negotiator, request("a"), request("a")).cache_id
    negotiator.repeat(0, ALL, [number], 0.0)
    agreed_by_all(negotiator, request("b"), request("b"))
    negotiator.repeat(1, ALL, [number], 0.0)
    assert agreement(negotiator).request.name == "a"


def test_a_rank_that_joins_takes_part_in_what_others_repeat() -> None:
    negotiator = Negotiator(2)
    number = agreed_by_all(negotiator, request(), request()).cache_id
    negotiator.repeat(0, ALL, [number], 0.0)
    negotiator.submit(1, [request("join", "join")], 0.0)
    assert agreement(negotiator).request.name == "x"
    negotiator.repeat(0, ALL, [number], 0.0)
    assert agreement(negotiator).request.name == "x"


def test_a_repeated_request_does_not_hide_that_another_rank_has_changed_its_own() -> None:
    negotiator = Negotiator(2)
    number = agreed_by_all(negotiator, request(), request()).cache_id
    negotiator.repeat(0, ALL, [number], 0.0)
    negotiator.submit(1, [request(shape=[4])], 0.0)
    assert "shapes" in agreement(negotiator).error
    negotiator.submit(0, [request(shape=[4])], 0.0)
    negotiator.repeat(1, ALL, [number], 0.0)
    assert "shapes" in agreement(negotiator).error


def test_a_change_on_all_ranks_replaces_the_number() -> None:
    negotiator = Negotiator(2)
    old = agreed_by_all(negotiator, request(), request()).cache_id
    for rank in range(2):
        negotiator.submit(rank, [request(shape=[4])], 0.0)
    agreed = negotiator.take()
    assert isinstance(agreed, Agreed)
    assert agreed.dropped == [old]


def test_the_cache_forgets_what_was_not_used_for_longest() -> None:
    negotiator = Negotiator(1, capacity=2)
    first = agreed_by_all(negotiator, request("a")).cache_id
    second = agreed_by_all(negotiator, request("b")).cache_id
    negotiator.repeat(0, ALL, [first], 0.0)
    negotiator.take()
    negotiator.submit(0, [request("c")], 0.0)
    agreed = negotiator.take()
    assert agreed is not None
    assert agreed.dropped == [second]
    # One that was on its way still counts.
    negotiator.repeat(0, ALL, [second], 0.0)
    assert agreement(negotiator).request.name == "b"


def test_an_unknown_number_is_refused() -> None:
    with pytest.raises(ProtocolError):
        Negotiator(1).repeat(0, ALL, [7], 0.0)


def test_a_group_is_agreed_as_a_whole() -> None:
    negotiator = Negotiator(2)
    members = [request(name, group="g", group_size=2) for name in ("a", "b")]
    negotiator.submit(0, members, 0.0)
    negotiator.submit(1, members[1:], 0.0)
    assert taken(negotiator) == []
    negotiator.submit(1, members[:1], 0.0)
    assert names(taken(negotiator)) == ["b", "a"]


def test_a_group_fails_as_a_whole() -> None:
    negotiator = Negotiator(2)
    for rank in range(2):
        shapes = {"a": [3], "b": [3 + rank]}
        group = [request(n, shape=s, group="g", group_size=2) for n, s in shapes.items()]
        negotiator.submit(rank, group, 0.0)
    errors = [item.error for item in taken(negotiator) if isinstance(item, Agreement)]
    assert len(errors) == 2
    assert errors[0] == errors[1] != ""


def test_who_has_joined_takes_part_in_sums_until_all_have() -> None:
    negotiator = Negotiator(2)
    negotiator.submit(0, [request("a")], 0.0)
    negotiator.submit(1, [request("join", "join")], 0.0)
    assert names(taken(negotiator)) == ["a"]
    negotiator.submit(0, [request("b", "allgather")], 0.0)
    assert "join()" in agreement(negotiator).error
    negotiator.submit(0, [request("join", "join")], 0.0)
    assert agreement(negotiator).sizes == [0]
    negotiator.submit(0, [request("c")], 0.0)
    assert taken(negotiator) == []


def test_a_process_set_waits_for_its_own_ranks_only() -> None:
    negotiator = Negotiator(3)
    added = request("add", "add_process_set", splits=[0, 2])
    number = agreed_by_all(negotiator, added, added, added).sizes[0]
    for rank in (0, 2):
        negotiator.submit(rank, [request(process_set=number)], 0.0)
    assert agreement(negotiator).error == ""
    removed = request("remove", "remove_process_set", root=number)
    agreed_by_all(negotiator, removed, removed, removed)
    negotiator.submit(0, [request(process_set=number)], 0.0)
    assert "removed" in agreement(negotiator).error


def test_a_name_in_two_process_sets_that_wait_for_each_other_is_an_error() -> None:
    negotiator = Negotiator(3)
    added = request("add", "add_process_set", splits=[0, 1])
    number = agreed_by_all(negotiator, added, added, added).sizes[0]
    negotiator.submit(0, [request()], 0.0)
    negotiator.submit(1, [request(process_set=number)], 0.0)
    negotiator.submit(2, [request()], 0.0)
    negotiator.check_crossed(CROSSED_SECONDS / 2)
    assert taken(negotiator) == []
    negotiator.check_crossed(CROSSED_SECONDS * 2)
    errors = [item.error for item in taken(negotiator) if isinstance(item, Agreement)]
    assert len(errors) == 2
    assert "process sets of 'x'" in errors[0]


def test_a_stall_has_names_and_missing_ranks() -> None:
    negotiator = Negotiator(3)
    negotiator.submit(1, [request("late")], 10.0)
    assert negotiator.stalled(11.0, 5.0) == []
    assert negotiator.stalled(16.0, 5.0) == [("late", [0, 2])]


def test_a_stall_of_a_repeated_request_is_noticed() -> None:
    negotiator = Negotiator(2)
    number = agreed_by_all(negotiator, request(), request()).cache_id
    negotiator.repeat(1, ALL, [number], 10.0)
    assert negotiator.stalled(11.0, 5.0) == []
    assert negotiator.stalled(16.0, 5.0) == [("x", [0])]
    negotiator.repeat(0, ALL, [number], 17.0)
    assert agreement(negotiator).error == ""


def test_sums_of_one_type_are_fused_up_to_a_limit() -> None:
    requests = [
        request("a", shape=[10]),
        request("b", kind="broadcast"),
        request("c", shape=[10]),
        request("d", dtype="int64", shape=[10]),
        request("e", shape=[10]),
        request("f", shape=[1000]),
    ]
    parts = fused(map(Agreement, requests), 80)
    shown = [[each.request.name for each in part] for part in parts]
    assert shown == [["a", "c"], ["b"], ["d"], ["e"], ["f"]]
