"""An agent as a Ray actor."""

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
    """The order for an actor: an encoded `AgentOrder`, and the rows that it provides to its roles.

    References to blocks are nested in it, so that Ray does not fetch all blocks at once.
    """

    order: bytes
    parts: Mapping[str, Part]
    spool_dir: str | None


class AgentActor:
    """An actor that runs one agent of a job."""

    def serve(self, sent: RayOrder) -> None:
        """Run an agent until the coordinator shuts it down."""
        order = decode_order(sent.order)
        node = ray.get_runtime_context().get_node_id()
        host = order.host or ray.util.get_node_ip_address()
        order = msgspec.structs.replace(order, host=host, machine=node)
        with Spool(tuple(sent.parts), sent.spool_dir) as spool:

            def fill() -> Spool:
                spool.fill(batches_of(sent.parts))
                return spool

            # Ray ends an actor's child processes with it: no other agent may depend on them.
            os.environ.pop(KEEP_LOADED, None)
            be_agent(order, fill=fill if sent.parts else None, shares=False)
