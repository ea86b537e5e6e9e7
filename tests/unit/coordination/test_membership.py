import msgspec
import pytest

from flambeau.coordination.membership import START_SECONDS, Membership
from flambeau.coordination.protocol import RoleJoined
from flambeau.coordination.roles import Role, RoleSpec


def spec(rank: int, role: Role = Role.WORKER) -> RoleSpec:
    return RoleSpec(
        role=role, rank=rank, world=2, local_rank=rank, local_world=2, node=0, generation=0
    )


EVALUATOR = spec(0, Role.EVALUATOR)


@pytest.fixture
def members() -> Membership:
    return Membership([spec(0), spec(1), EVALUATOR], now=100.0)


def join(members: Membership, rank: int, now: float = 101.0) -> None:
    members.joined(b"peer", RoleJoined(spec(rank), pid=7), now)


def test_it_is_complete_when_all_workers_joined_whatever_the_evaluator_does(
    members: Membership,
) -> None:
    join(members, 1)
    assert not members.complete()
    join(members, 0)
    assert members.complete()


def test_who_has_not_been_seen_for_the_timeout_is_silent(members: Membership) -> None:
    members.seen(spec(0), 115.0)
    join(members, 1, now=109.0)
    silent = members.silent(now=120.0, timeout=10.0)
    assert [member.spec for member in silent] == [spec(1)]


def test_who_has_not_joined_yet_gets_time_to_start(members: Membership) -> None:
    join(members, 0, now=215.0)
    join(members, 1, now=215.0)
    assert not members.silent(now=100.0 + START_SECONDS, timeout=10.0)
    late = members.silent(now=101.0 + START_SECONDS, timeout=10.0)
    assert [member.spec for member in late] == [EVALUATOR]


def test_who_has_exited_is_not_silent(members: Membership) -> None:
    members[spec(0)].exited = True
    assert spec(0) not in [member.spec for member in members.silent(500.0, 10.0)]


def test_all_have_exited_only_with_the_evaluator(members: Membership) -> None:
    for member in members.group():
        member.exited = True
    assert not members.all_exited()
    members[EVALUATOR].exited = True
    assert members.all_exited()


def test_the_group_is_done_without_the_evaluator(members: Membership) -> None:
    members[spec(0)].done = True
    assert not members.group_done()
    members[spec(1)].done = True
    assert members.group_done()


def test_a_role_of_another_generation_is_no_member(members: Membership) -> None:
    old = RoleSpec(Role.WORKER, 0, 2, 0, 2, 0, generation=9)
    assert spec(0) in members
    assert old not in members


def test_another_process_takes_a_lost_ones_place_in_the_order(members: Membership) -> None:
    join(members, 0)
    join(members, 1)
    members[spec(0)].done = True
    other = msgspec.structs.replace(spec(0), attempt=1)
    members.replace(spec(0), other, now=130.0)
    assert [member.spec for member in members.all()] == [other, spec(1), EVALUATOR]
    assert spec(0) not in members
    new = members[other]
    assert (new.peer, new.joined, new.done, new.last_seen) == (None, None, False, 130.0)


def test_a_replacement_gets_time_to_start(members: Membership) -> None:
    other = msgspec.structs.replace(spec(0), attempt=1)
    members.replace(spec(0), other, now=200.0)
    silent = [member.spec for member in members.silent(now=100.0 + 2 * START_SECONDS, timeout=1.0)]
    assert other in silent
    assert other not in [m.spec for m in members.silent(now=200.0 + START_SECONDS, timeout=1.0)]


def test_all_have_joined_only_with_the_replacement(members: Membership) -> None:
    join(members, 0)
    join(members, 1)
    other = msgspec.structs.replace(spec(1), attempt=1)
    members.replace(spec(1), other, now=130.0)
    assert not members.complete()
    members.joined(b"peer", RoleJoined(other, pid=8), 131.0)
    assert members.complete()
