"""Which agent starts which roles: a pure decision."""

import itertools

from flambeau.coordination.roles import Role, RoleSpec


def place_roles(
    agents: int,
    workers: int,
    generation: int,
    *,
    role: Role = Role.WORKER,
    servers: int = 0,
    evaluator: bool = False,
) -> dict[int, list[RoleSpec]]:
    """The roles of a generation by agent.

    Workers (of kind `role`) are spread evenly, neighbours in rank together; servers go round the
    agents; the evaluator is on the first one.
    """
    bounds = [round(index * workers / agents) for index in range(agents + 1)]
    placed = {
        agent: _workers(role, range(first, last), workers, agent, generation)
        for agent, (first, last) in enumerate(itertools.pairwise(bounds))
    }
    for shard in range(servers):
        node = shard % agents
        placed[node].append(RoleSpec(Role.SERVER, shard, servers, 0, 1, node, generation))
    if evaluator:
        placed[0].append(RoleSpec(Role.EVALUATOR, 0, 1, 0, 1, 0, generation))
    return placed


def _workers(role: Role, ranks: range, world: int, node: int, generation: int) -> list[RoleSpec]:
    return [
        RoleSpec(
            role=role,
            rank=rank,
            world=world,
            local_rank=rank - ranks.start,
            local_world=len(ranks),
            node=node,
            generation=generation,
        )
        for rank in ranks
    ]
