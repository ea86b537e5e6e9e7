"""An agent as an actor of Ray."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import ray

from flambeau.clusters.agent_process import be_agent, decode_order
from flambeau.clusters.fork_server import KEEP_LOADED
from flambeau.clusters.ray.blocks import Part, batches_of
from flambeau.clusters.spool import Spool


@dataclass(frozen=True)
class RayOrder:
    """What an actor is sent: an encoded `AgentOrder`, and the rows that it brings to its roles.

    The blocks are named inside, so that Ray does not fetch them all at once.
    """

    order: bytes
    parts: Mapping[str, Part]
    spool_dir: str | None


class AgentActor:
    """Serves one job as one of its agents."""

    def serve(self, sent: RayOrder) -> None:
        """Be an agent until the coordinator has it shut down."""
        order = decode_order(sent.order)
        node = ray.get_runtime_context().get_node_id()
        host = order.host or ray.util.get_node_ip_address()
        order = msgspec.structs.replace(order, host=host, machine=node)
        with Spool(tuple(sent.parts), sent.spool_dir) as spool:

            def fill() -> Spool:
                spool.fill(batches_of(sent.parts))
                return spool

            # With an actor, Ray ends what it has started: no other agent may depend on that.
            os.environ.pop(KEEP_LOADED, None)
            be_agent(order, fill=fill if sent.parts else None, shares=False)
