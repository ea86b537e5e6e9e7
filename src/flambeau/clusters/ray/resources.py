"""The room in a Ray cluster: on its nodes, or in the placement group of this process."""

from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.util.placement_group import get_current_placement_group

from flambeau.config.plural import number_of
from flambeau.errors import ConfigError

Resources = Mapping[str, float]


def live_nodes() -> list[dict[str, Any]]:
    """Return the nodes that Ray can reach."""
    return [node for node in ray.nodes() if node["Alive"]]


def places(bundle: Resources, rooms: Sequence[Resources]) -> int:
    """Return how many bundles there is room for; no bundle is split over two rooms."""
    return sum(
        min(int(room.get(name, 0) / amount + 1e-6) for name, amount in bundle.items())
        for room in rooms
    )


# The nodes


def require_nodes(bundle: Resources, count: int) -> None:
    """Raise an error if there is no room for `count` bundles even when no other program runs."""
    rooms: list[Resources] = [node["Resources"] for node in live_nodes()]
    if places(bundle, rooms) >= count:
        return
    largest = max(rooms, key=lambda room: room.get("CPU", 0.0))
    most = f", at most {shown(largest)} on one" if len(rooms) > 1 else ""
    has = f"this Ray has only {_on_nodes(ray.cluster_resources())}{most}"
    more = ". If it grows by itself, give more seconds to wait for nodes (resources_timeout=)"
    raise _too_few(bundle, count, has, more)


def no_room(bundle: Resources, count: int, waited: float) -> ConfigError:
    """Return the error for a cluster without room for `count` bundles after `waited` seconds."""
    has = f"after {waited:.0f} s this Ray has only {_on_nodes(ray.available_resources())} free"
    return _too_few(bundle, count, has, f", or wait longer (resources_timeout=){_in_a_trial()}")


def _too_few(bundle: Resources, count: int, has: str, more: str) -> ConfigError:
    return ConfigError(
        f"cluster=Ray({count}) needs {shown(bundle)} for each of {number_of(count, 'worker')}, and "
        f"{has}: ask for fewer workers, or less for each (cores_per_worker=, gpus_per_worker=), or "
        f"add nodes{more}"
    )


def _on_nodes(resources: Resources) -> str:
    return f"{shown(resources)} on {number_of(len(live_nodes()), 'node')}"


def shown(resources: Resources) -> str:
    """Return resources as readable text."""
    known = {"CPU": "core", "GPU": "GPU"}
    return ", ".join(
        f"{amount:g} {known[name]}{'' if amount == 1 else 's'}"
        for name, amount in ((name, resources.get(name, 0.0)) for name in known)
        if name == "CPU" or amount
    )


# The placement group of this process


def reserved_group(bundle: Resources, count: int) -> Any | None:
    """Return the placement group that was reserved for this process and the actors it starts.

    A Tune trial has one. None if there is none, or if it has no room for `count` bundles besides
    the resources of this process.
    """
    group = _own_group()
    if group is None:
        return None
    taken = ray.get_runtime_context().get_assigned_resources()
    return group if places(bundle, left_by(taken, group.bundle_specs)) >= count else None


def left_by(taken: Resources, bundles: Sequence[Resources]) -> list[Resources]:
    """Return what is left of bundles after a process has taken resources from one of them."""
    left = list(bundles)
    for number, bundle in enumerate(left):
        if all(bundle.get(name, 0) >= amount for name, amount in taken.items()):
            left[number] = {name: bundle[name] - taken.get(name, 0) for name in bundle}
            break
    return left


def _own_group() -> Any | None:
    """Return the placement group of this process, if the actors that it starts belong to it."""
    captures = ray.get_runtime_context().should_capture_child_tasks_in_placement_group
    return get_current_placement_group() if captures else None


def _in_a_trial() -> str:
    if _own_group() is None:
        return ""
    return (
        ". In a trial of Tune, reserve room for them: tune.with_resources(trainable, "
        "tune.PlacementGroupFactory([{'CPU': 1}, ...])), with a further bundle for each worker"
    )
