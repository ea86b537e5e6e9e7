"""What a Ray has at the moment: agents, placement groups, nodes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import placement_group_table


@dataclass(frozen=True)
class Agent:
    """An actor that is an agent: its process, and the address of its node."""

    id: str
    pid: int
    host: str

    def kill(self) -> None:
        """End it as `ray.kill` does."""
        actor = ray.ActorID(bytes.fromhex(self.id))
        ray._private.worker.global_worker.core_worker.kill_actor(actor, True)


def agents() -> set[Agent]:
    """Return the agents that run."""
    hosts = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
    return {
        Agent(actor["ActorID"], actor["Pid"], hosts[actor["Address"]["NodeID"]])
        for actor in _actors()
        if actor["State"] == "ALIVE"
    }


def unfinished_agents() -> list[str]:
    """Return the states of agents that run, start or wait."""
    return [actor["State"] for actor in _actors() if actor["State"] != "DEAD"]


def _actors() -> list[dict[str, Any]]:
    found = ray._private.state.actors().values()
    return [actor for actor in found if actor["ActorClassName"] == "AgentActor"]


def groups() -> list[str]:
    """Return the states of the placement groups that have or want room."""
    states = [group["state"] for group in placement_group_table().values()]
    return [state for state in states if state != "REMOVED"]


def live_hosts() -> set[str]:
    """Return the addresses of the nodes."""
    return {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def eventually(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until something is true; return it."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return found
