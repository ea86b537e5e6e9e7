"""Running a topology on a cluster: the only place where a controller is started."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flambeau import config
from flambeau.clusters.base import Launch
from flambeau.clusters.file_transfer.carrier import Carrier, remove_traces
from flambeau.clusters.file_transfer.file_parts import TOKEN
from flambeau.clusters.open_files import raise_open_files
from flambeau.clusters.registry import open_cluster
from flambeau.config import Recovery, RemoteCluster
from flambeau.coordination.payloads import Payload, RunPayload
from flambeau.driver.control.controller import Controller
from flambeau.driver.outcome import Outcome
from flambeau.driver.topology import Topology
from flambeau.observe import Observer
from flambeau.roles.role_modules import modules_of

CHILD_MODULE = "flambeau.roles.main"


def run_topology(
    topology: Topology,
    cluster: config.Cluster,
    observer: Observer,
    recovery: Recovery,
    payload: Payload,
    fds: tuple[int, ...] = (),
    frames: Mapping[str, Any] | None = None,
    *,
    graceful: bool,
) -> Outcome:
    """Run all roles of a topology to their end. `graceful`: they can save and stop on request.

    `frames` are data frames of the cluster's engine, by name.
    """
    raise_open_files()
    placed = open_cluster(cluster, frames or {})
    controller = Controller(topology, placed, observer, recovery, graceful=graceful)
    launch = Launch(
        coordinator=controller.address,
        secret=controller.secret,
        module=CHILD_MODULE,
        payload=payload,
        fds=fds,
        preload=modules_of(topology.roles),
        threads_per_worker=cluster.worker_threads,
        pinned=placed.pins_cores,
        affinity=cluster.affinity != "none",
        threads_per_core=cluster.threads_per_core,
        **_files(cluster, topology.carrier, payload),
    )
    try:
        return controller.run(launch)
    finally:
        if isinstance(payload, RunPayload) and launch.token:
            remove_traces(Path(payload.run_dir))
        if topology.carrier is not None:
            topology.carrier.close()


def _files(cluster: config.Cluster, carrier: Carrier | None, payload: Payload) -> dict[str, Any]:
    """Return how remote agents check whether they see the run's files, and get them if not."""
    if not isinstance(cluster, RemoteCluster) or not isinstance(payload, RunPayload):
        return {}
    token = uuid.uuid4().hex
    (Path(payload.run_dir) / TOKEN).write_text(token, encoding="ascii")
    shown = token if cluster.shared_files else "not to be seen"
    depot = None if carrier is None or carrier.depot is None else carrier.depot.url
    return {
        "token": shown,
        "mirrors": cluster.spool_dir,
        "carry_bytes": cluster.carry_mb << 20,
        "depot": depot,
    }
