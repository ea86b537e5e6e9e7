"""Placement of roles on agents: a pure decision."""

import itertools
from collections import Counter
from collections.abc import Hashable, Sequence

import msgspec

from flambeau.coordination.file_messages import AgentJoined
from flambeau.coordination.roles import Role, RoleSpec


def place_roles(
    agents: Sequence[AgentJoined],
    workers: int,
    generation: int,
    *,
    role: Role = Role.WORKER,
    servers: int = 0,
    evaluator: bool = False,
) -> dict[int, list[RoleSpec]]:
    """Return the roles of a generation by agent.

    Workers (of kind `role`) are spread evenly over the agents, with neighbouring ranks together.
    Servers are assigned to machines in turn, and to the agents of each in turn. The evaluator runs
    on the first agent.
    """
    specs = [
        RoleSpec(role, rank, workers, 0, 1, agent, generation)
        for rank, agent in enumerate(agents_of_workers(len(agents), workers))
    ]
    specs = _seated(specs, agents, ())
    machines = _machines(agents)
    for shard in range(servers):
        number = shard % len(machines)
        own = machines[number]
        agent = own[shard // len(machines) % len(own)]
        server = RoleSpec(Role.SERVER, shard, servers, 0, 1, agent, generation, machine=number)
        specs.append(server)
    if evaluator:
        specs.append(RoleSpec(Role.EVALUATOR, 0, 1, 0, 1, 0, generation))
    return {agent: [s for s in specs if s.node == agent] for agent in range(len(agents))}


def agents_of_workers(agents: int, workers: int) -> list[int]:
    """Return the agent's number for each worker, which is the same in every generation."""
    bounds = [round(index * workers / agents) for index in range(agents + 1)]
    spans = enumerate(itertools.pairwise(bounds))
    return [agent for agent, (first, last) in spans for _ in range(first, last)]


def place_again(
    lost: Sequence[RoleSpec], agents: Sequence[AgentJoined], others: Sequence[RoleSpec]
) -> list[RoleSpec]:
    """Return the roles of an agent that was replaced, adapted to the machine of the new one.

    The `others` still run, and keep their local ranks and cores.
    """
    workers = [spec for spec in lost if spec.role.in_group]
    seated = iter(_seated(workers, agents, [spec for spec in others if spec.role.in_group]))
    numbers = _numbers(agents)
    return [
        next(seated)
        if spec.role.in_group
        else msgspec.structs.replace(spec, machine=numbers[spec.node])
        for spec in lost
    ]


def _seated(
    workers: Sequence[RoleSpec], agents: Sequence[AgentJoined], others: Sequence[RoleSpec]
) -> list[RoleSpec]:
    """Return workers with the lowest local ranks and shares of cores that others do not use."""
    machine = _numbers(agents)
    cores = [(machine[number], *agent.cores) for number, agent in enumerate(agents)]
    ranks = _shares(
        [machine[spec.node] for spec in workers],
        [(machine[spec.node], spec.local_rank) for spec in others],
    )
    parts = _shares(
        [cores[spec.node] for spec in workers],
        [(cores[spec.node], spec.core_share[0]) for spec in others],
    )
    return [
        msgspec.structs.replace(
            spec, local_rank=rank, local_world=world, machine=machine[spec.node], core_share=part
        )
        for spec, (rank, world), part in zip(workers, ranks, parts, strict=True)
    ]


def _shares(
    keys: Sequence[Hashable], taken: Sequence[tuple[Hashable, int]]
) -> list[tuple[int, int]]:
    """Return for each key the lowest number not taken there, and the total of numbers there."""
    used: dict[Hashable, set[int]] = {key: set() for key in keys}
    for key, number in taken:
        used.setdefault(key, set()).add(number)
    totals = Counter([*keys, *(key for key, _ in taken)])
    found = []
    for key in keys:
        number = next(number for number in itertools.count() if number not in used[key])
        used[key].add(number)
        found.append((number, max(totals[key], number + 1)))
    return found


def _numbers(agents: Sequence[AgentJoined]) -> list[int]:
    """Return the number of each agent's machine."""
    known: dict[str, int] = {}
    return [known.setdefault(agent.machine, len(known)) for agent in agents]


def _machines(agents: Sequence[AgentJoined]) -> list[list[int]]:
    """Return the agents of each machine."""
    numbers = _numbers(agents)
    return [
        [agent for agent, number in enumerate(numbers) if number == machine]
        for machine in range(max(numbers) + 1)
    ]
