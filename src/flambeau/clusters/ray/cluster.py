"""Agents as Ray actors, one in each bundle of a placement group."""

import logging
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, final

import msgspec
import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from flambeau.clusters.agent_process import AgentOrder
from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.clusters.local import LOOPBACK
from flambeau.clusters.ray.address import require_known_keys, require_listener, warn_of_another
from flambeau.clusters.ray.agent import AgentActor, RayOrder
from flambeau.clusters.ray.blocks import Part, deal_out
from flambeau.clusters.ray.errors import never_ran, reason_of
from flambeau.clusters.ray.resources import (
    live_nodes,
    no_room,
    require_nodes,
    reserved_group,
    shown,
)
from flambeau.config import Ray
from flambeau.config.plural import number_of
from flambeau.errors import ConfigError, DataError, UserError
from flambeau.kernels.cores import usable_cores

#: How long actors may take to end before they are killed.
STOP_SECONDS = 10.0
#: Adding nodes takes longer: only with a greater `resources_timeout` does a job wait for them.
BRIEF_SECONDS: float = Ray.model_fields["resources_timeout"].default
#: Where a Ray that is started here listens; Ray would replace 127.0.0.1 by an outer address.
OWN_ADDRESS = "127.0.0.2"
#: The address with which Ray starts a new cluster even if another one is running.
NEW = "local"


@final
class RayCluster(Cluster):
    """One actor for each worker; rows of Ray Datasets (`frames`) are split over the actors."""

    place_name = "node"
    replaces_single_agents = True

    def __init__(self, settings: Ray, frames: Mapping[str, Any]) -> None:
        self._settings = settings
        connect(settings)
        self.agents = settings.workers
        self.brings_rows = bool(frames)
        self.patience = settings.start_timeout
        self._awaits_nodes = settings.resources_timeout > BRIEF_SECONDS
        own = ray.util.get_node_ip_address()
        alone = {node["NodeManagerAddress"] for node in live_nodes()} == {own}
        self._one_machine = alone and not self._awaits_nodes
        self.coordinator_host = settings.host or (LOOPBACK if self._one_machine else own)
        self._frames = dict(frames)
        self._parts: list[dict[str, Part]] = []
        self._launch: Launch | None = None
        self._group: Any = None
        #: A group that was reserved for this process and its workers; its owner removes it.
        self._reserved: Any = None
        self._placed: Any = None
        self._asked = 0.0
        self._actors: dict[int, Any] = {}
        #: Futures of each actor: it has started; it has ended.
        self._started: dict[int, Any] = {}
        self._serving: dict[Any, int] = {}

    def start(self, launch: Launch) -> None:
        """Request a placement group, and an actor in each bundle, which starts when it has room."""
        self._launch = launch
        bundle = self._settings.resources
        self._reserved = reserved_group(bundle, self.agents)
        if self._reserved is None and not self._awaits_nodes:
            require_nodes(bundle, self.agents)
        self._parts = self._deal_out()
        if self._reserved is None:
            self._ask_for_room(bundle)
        for agent in range(self.agents):
            self._start(agent)

    def _ask_for_room(self, bundle: Mapping[str, float]) -> None:
        strategy = self._settings.placement.upper()
        self._group = placement_group([bundle] * self.agents, strategy=strategy)
        self._placed, self._asked = self._group.ready(), time.monotonic()
        self.patience += self._settings.resources_timeout

    def _deal_out(self) -> list[dict[str, Part]]:
        dealt: list[dict[str, Part]] = [{} for _ in range(self.agents)]
        for name, dataset in self._frames.items():
            try:
                parts = deal_out(dataset, self.agents)
            except DataError as error:
                raise DataError(f"{name}=: {error}") from None
            for mine, part in zip(dealt, parts, strict=True):
                mine[name] = part
        return dealt

    def _start(self, agent: int) -> None:
        assert self._launch is not None
        settings = self._settings
        order = AgentOrder(self._launch, agent, LOOPBACK if self._one_machine else None)
        resources = settings.resources
        actor: Any = (
            ray.remote(AgentActor)
            .options(
                num_cpus=resources["CPU"],
                num_gpus=resources.get("GPU", 0),
                scheduling_strategy=self._where(agent),
                runtime_env=settings.runtime_env,
                max_restarts=0,
            )
            .remote()
        )
        self._started[agent] = actor.__ray_ready__.remote()
        encoded = msgspec.msgpack.encode(order)
        serving = actor.serve.remote(RayOrder(encoded, self._parts[agent], settings.spool_dir))
        self._actors[agent], self._serving[serving] = actor, agent

    def _where(self, agent: int) -> PlacementGroupSchedulingStrategy:
        if self._reserved is not None:
            return PlacementGroupSchedulingStrategy(self._reserved)  # in any bundle with room
        return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=agent)

    def poll(self) -> list[AgentEnded]:
        """Return the agents whose actors have ended, with the reason that Ray reports."""
        self._require_place()
        done = _done(self._serving)
        errors = {self._serving.pop(serving): _error_of(serving) for serving in done}
        ended = []
        for agent, error in errors.items():
            if error is not None and never_ran(error):
                self._start(agent)  # its bundle was on a lost node; Ray is moving it now
            elif error is not None:
                ended.append(AgentEnded(reason_of(error), agent))
        return ended

    def _require_place(self) -> None:
        """Raise an error if there has been no room for longer than `resources_timeout`."""
        if self._placed is None:
            return
        waited = time.monotonic() - self._asked
        if _done([self._placed]):
            self._placed = None
            self.patience = self._settings.start_timeout + waited
        elif waited > self._settings.resources_timeout:
            raise no_room(self._settings.resources, self.agents, waited)

    @property
    def ended(self) -> bool:
        """Return whether there is no room yet, so that no agent will join (see `Cluster`)."""
        return self._placed is not None

    def restart(self, agents: Sequence[int]) -> None:
        """Start new actors in the same bundles; Ray moves bundles of lost nodes to other nodes."""
        self.patience = self._settings.start_timeout
        for agent in agents:
            self._end(agent)
            self._start(agent)

    def _end(self, agent: int) -> None:
        ray.kill(self._actors.pop(agent))
        self._serving = {ref: number for ref, number in self._serving.items() if number != agent}

    def late(self, missing: Sequence[int]) -> UserError:
        """Return the error for missing agents: bundles of lost nodes wait for room elsewhere."""
        return ConfigError(
            f"{number_of(len(missing), 'agent')} of {self.agents} did not join within "
            f"{self.patience:.0f} s. If Ray has not started them: it has "
            f"{shown(ray.available_resources())} free, and each needs "
            f"{shown(self._settings.resources)}; add nodes, or wait longer with "
            "Ray(start_timeout=...). If they run: nodes cannot reach this process at "
            f"{self.coordinator_host}; give Ray(host=...)"
        )

    def stop(self) -> None:
        """Wait for the actors, which have received shutdown requests; then remove the group."""
        started = _done(self._started.values())
        serving = [each for each, agent in self._serving.items() if self._started[agent] in started]
        _done(serving, STOP_SECONDS)
        for agent in list(self._actors):
            self._end(agent)
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None


def connect(settings: Ray) -> None:
    """Use this process's Ray connection, join a running cluster, or start one on this machine."""
    require_known_keys(settings.runtime_env)
    if ray.is_initialized():
        warn_of_another(settings.address)
        return
    address = settings.address or os.environ.get("RAY_ADDRESS") or None
    require_listener(address or "")
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        if address in (None, NEW):
            _start_unless_running(address, quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = f"at {address!r}" if address else "that was started on this machine"
        raise ConfigError(f"cannot join the Ray {where}: {error}") from error


def _start_unless_running(address: str | None, quiet: Mapping[str, Any]) -> None:
    """Join the cluster that `ray start` has started on this machine, or start one.

    Other clusters that Ray would find (`"auto"`) belong to programs, and end with them.
    """
    own: dict[str, Any] = {"include_dashboard": False, "num_cpus": len(usable_cores())}
    if sys.platform == "linux":
        own["_node_ip_address"] = OWN_ADDRESS
    try:
        ray.init(address=address, **own, **quiet)
    except ValueError as error:
        if "existing cluster" not in str(error):
            raise
        ray.init(**quiet)  # a running cluster has its own number of cores


def _done(futures: Collection[Any], seconds: float = 0) -> list[Any]:
    """Wait at most `seconds` for all futures; return those that are done."""
    if not futures:
        return []
    done: list[Any] = ray.wait(list(futures), num_returns=len(futures), timeout=seconds)[0]
    return done


def _error_of(serving: Any) -> RayError | None:
    """Return the error with which an actor has ended; None if it shut down on request."""
    try:
        ray.get(serving)
    except RayError as error:
        return error
    return None
