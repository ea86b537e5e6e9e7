import pytest

from flambeau.coordination.file_messages import AgentJoined
from flambeau.coordination.placement import place_again, place_roles
from flambeau.coordination.roles import Role, RoleSpec


def agents_on(machines: str, cores: str = "") -> list[AgentJoined]:
    """One agent for each letter, the name of its machine; equal digits are equal sets of cores."""
    sets = cores or "0" * len(machines)
    return [
        AgentJoined(number, f"host-{name}", name, [2 * int(digit), 2 * int(digit) + 1])
        for number, (name, digit) in enumerate(zip(machines, sets, strict=True))
    ]


def local(placed: dict[int, list[RoleSpec]]) -> list[tuple[int, int, int]]:
    """Local rank, local world and machine of all workers."""
    workers = [s for own in placed.values() for s in own if s.role.in_group]
    return [(s.local_rank, s.local_world, s.machine) for s in workers]


def ranks(placed: dict[int, list[RoleSpec]], role: Role) -> list[list[int]]:
    return [[s.rank for s in placed[agent] if s.role is role] for agent in sorted(placed)]


@pytest.mark.parametrize(("agents", "workers"), [(1, 3), (2, 4), (3, 4), (3, 7), (4, 2), (8, 12)])
def test_workers_are_spread_evenly_with_neighbours_together(agents: int, workers: int) -> None:
    found = ranks(place_roles(agents_on("abcdefgh"[:agents]), workers, 0), Role.WORKER)
    assert len(found) == agents
    assert max(map(len, found)) - min(map(len, found)) <= 1
    assert [rank for own in found for rank in own] == list(range(workers))


def test_a_worker_knows_its_place_on_its_agent_and_among_all() -> None:
    last = place_roles(agents_on("ab"), 4, 7)[1][-1]
    assert last == RoleSpec(Role.WORKER, 3, 4, 1, 2, 1, 7, machine=1, core_share=(1, 2))


def test_local_ranks_count_all_agents_of_a_machine() -> None:
    assert local(place_roles(agents_on("aa"), 2, 0)) == [(0, 2, 0), (1, 2, 0)]


def test_agents_of_a_machine_need_not_be_neighbours() -> None:
    placed = place_roles(agents_on("abab"), 8, 0)
    first, second = [(0, 4), (1, 4)], [(2, 4), (3, 4)]
    found = [(rank, world) for rank, world, _ in local(placed)]
    assert found == [*first, *first, *second, *second]
    assert [machine for _, _, machine in local(placed)] == [0, 0, 1, 1, 0, 0, 1, 1]


def test_machines_may_have_different_numbers_of_agents() -> None:
    placed = place_roles(agents_on("aab"), 3, 0)
    assert local(placed) == [(0, 2, 0), (1, 2, 0), (0, 1, 1)]


@pytest.mark.parametrize(
    ("machines", "cores", "shares"),
    [
        ("aa", "00", [(0, 4), (1, 4), (2, 4), (3, 4)]),
        ("aa", "01", [(0, 2), (1, 2), (0, 2), (1, 2)]),
        ("ab", "00", [(0, 2), (1, 2), (0, 2), (1, 2)]),
        ("aaaa", "0101", [(0, 2), (0, 2), (1, 2), (1, 2)]),
    ],
)
def test_agents_of_a_machine_with_the_same_cores_share_them(
    machines: str, cores: str, shares: list[tuple[int, int]]
) -> None:
    placed = place_roles(agents_on(machines, cores), 4, 0)
    assert [s.core_share for own in placed.values() for s in own] == shares


def test_a_replaced_agent_on_the_same_machine_has_what_the_lost_one_had() -> None:
    agents = agents_on("aab")
    placed = place_roles(agents, 6, 0, servers=3)
    others = [*placed[0], *placed[2]]
    assert place_again(placed[1], agents, others) == placed[1]


def test_a_replaced_agent_on_another_machine_takes_what_is_free_there() -> None:
    placed = place_roles(agents_on("aab"), 3, 0, servers=1)
    (moved, server) = place_again(placed[0], agents_on("bab"), [*placed[1], *placed[2]])
    assert (moved.local_rank, moved.local_world, moved.core_share) == (1, 2, (1, 2))
    assert moved.rank == moved.node == server.node == 0


def test_servers_go_round_the_machines_and_then_the_agents_of_each() -> None:
    placed = place_roles(agents_on("aaab"), 4, 0, servers=5)
    assert ranks(placed, Role.SERVER) == [[0], [2], [4], [1, 3]]
    machines = {s.rank: s.machine for own in placed.values() for s in own if not s.role.in_group}
    assert machines == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}


def test_servers_go_round_the_agents() -> None:
    placed = place_roles(agents_on("ab"), 2, 0, servers=3)
    assert ranks(placed, Role.SERVER) == [[0, 2], [1]]
    assert {s.world for own in placed.values() for s in own if s.role is Role.SERVER} == {3}


def test_there_may_be_more_agents_than_servers() -> None:
    assert ranks(place_roles(agents_on("abc"), 3, 0, servers=1), Role.SERVER) == [[0], [], []]


def test_the_evaluator_is_on_the_first_agent() -> None:
    assert ranks(place_roles(agents_on("ab"), 2, 0, evaluator=True), Role.EVALUATOR) == [[0], []]
    assert ranks(place_roles(agents_on("ab"), 2, 0), Role.EVALUATOR) == [[], []]


def test_workers_may_be_of_another_kind() -> None:
    assert ranks(place_roles(agents_on("a"), 2, 0, role=Role.FUNCTION), Role.FUNCTION) == [[0, 1]]


def test_all_are_of_the_generation() -> None:
    placed = place_roles(agents_on("ab"), 3, 5, servers=2, evaluator=True)
    assert {spec.generation for own in placed.values() for spec in own} == {5}
    assert len(set(placed[0] + placed[1])) == 6
