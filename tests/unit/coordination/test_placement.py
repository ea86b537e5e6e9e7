import pytest

from flambeau.coordination.placement import place_roles
from flambeau.coordination.roles import Role, RoleSpec


def ranks(placed: dict[int, list[RoleSpec]], role: Role) -> list[list[int]]:
    return [[s.rank for s in placed[agent] if s.role is role] for agent in sorted(placed)]


@pytest.mark.parametrize(("agents", "workers"), [(1, 3), (2, 4), (3, 4), (3, 7), (4, 2), (8, 12)])
def test_workers_are_spread_evenly_with_neighbours_together(agents: int, workers: int) -> None:
    found = ranks(place_roles(agents, workers, 0), Role.WORKER)
    assert len(found) == agents
    assert max(map(len, found)) - min(map(len, found)) <= 1
    assert [rank for own in found for rank in own] == list(range(workers))


def test_a_worker_knows_its_place_on_its_agent_and_among_all() -> None:
    last = place_roles(2, 4, 7)[1][-1]
    assert last == RoleSpec(Role.WORKER, 3, 4, 1, 2, 1, 7)


def test_servers_go_round_the_agents() -> None:
    placed = place_roles(2, 2, 0, servers=3)
    assert ranks(placed, Role.SERVER) == [[0, 2], [1]]
    assert {s.world for own in placed.values() for s in own if s.role is Role.SERVER} == {3}


def test_there_may_be_more_agents_than_servers() -> None:
    assert ranks(place_roles(3, 3, 0, servers=1), Role.SERVER) == [[0], [], []]


def test_the_evaluator_is_on_the_first_agent() -> None:
    assert ranks(place_roles(2, 2, 0, evaluator=True), Role.EVALUATOR) == [[0], []]
    assert ranks(place_roles(2, 2, 0), Role.EVALUATOR) == [[], []]


def test_workers_may_be_of_another_kind() -> None:
    assert ranks(place_roles(1, 2, 0, role=Role.FUNCTION), Role.FUNCTION) == [[0, 1]]


def test_all_are_of_the_generation() -> None:
    placed = place_roles(2, 3, 5, servers=2, evaluator=True)
    assert {spec.generation for own in placed.values() for spec in own} == {5}
    assert len(set(placed[0] + placed[1])) == 6
