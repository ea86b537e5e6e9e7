"""`run`: call any function in N processes, with torch.distributed initialised."""

import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle

from flambeau.config import Cluster, Recovery, RemoteCluster
from flambeau.coordination.failures import Cause
from flambeau.coordination.payloads import FunctionFiles, FunctionValue, Payload, ScriptPayload
from flambeau.coordination.roles import Role
from flambeau.driver.fit import raise_failure
from flambeau.driver.launching import run_topology
from flambeau.driver.outcome import Outcome
from flambeau.driver.spmd import comparable, together
from flambeau.driver.topology import Topology, cluster_of
from flambeau.observe import Observer, OutputFiles, display
from flambeau.roles.function import load, store

Value = TypeVar("Value")


def run(
    function: Callable[..., Value], *args: Any, cluster: Cluster | None = None, **kwargs: Any
) -> list[Value]:
    """Call `function(*args, **kwargs)` in every process of the cluster; return results by rank.

    In each process, torch.distributed is initialised and RANK, WORLD_SIZE and LOCAL_RANK are set.
    The function and its results may be anything that can be pickled, also from a notebook.
    """
    cluster = cluster_of(cluster)
    arguments = comparable({"function": function, "cluster": cluster})
    return together(cluster, "fb.run", arguments, partial(_run, (function, args, kwargs)))


def _run(call: Any, cluster: Cluster) -> list[Any]:
    """Call a function in the process that drives the job."""
    if isinstance(cluster, RemoteCluster):
        return _run_elsewhere(call, cluster)
    descriptors = [_anonymous_file() for _ in range(cluster.workers + 1)]
    try:
        store(descriptors[0], call)
        payload = FunctionFiles(descriptors[0], descriptors[1:])
        outcome = launch_roles(Role.FUNCTION, cluster, payload, tuple(descriptors))
        finish(outcome)
        return [load(descriptor) for descriptor in descriptors[1:]]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _run_elsewhere(call: Any, cluster: Cluster) -> list[Any]:
    """Call a function on other machines, which cannot use file descriptors of this one."""
    payload = FunctionValue(cloudpickle.dumps(call))
    outcome = launch_roles(Role.FUNCTION, cluster, payload, ())
    finish(outcome)
    return [pickle.loads(outcome.summaries[rank]["result"]) for rank in range(cluster.workers)]


def run_script(
    payload: ScriptPayload,
    cluster: Cluster | None,
    *,
    max_restarts: int = 0,
    logs: Path | None = None,
) -> int:
    """Run a script, a module or another program in every process of the cluster.

    Return 0, or the exit code of the first process that exited with another code or was killed.
    After such a failure all processes restart, up to `max_restarts` times. With `logs`, the output
    of each process is written to a file in that folder.
    """
    cluster = cluster_of(cluster)
    compared = {"program": payload.program, "arguments": payload.arguments, "cluster": cluster}
    run = partial(_run_script, payload, Recovery(max_restarts=max_restarts), logs)
    return together(cluster, "flambeau run", comparable(compared), run)


def _run_script(
    payload: ScriptPayload, recovery: Recovery, logs: Path | None, cluster: Cluster
) -> int:
    observer = display("lines", every_seconds=5.0) if logs is None else OutputFiles(logs)
    outcome = launch_roles(Role.SCRIPT, cluster, payload, (), observer, recovery)
    failure = outcome.failure
    if failure is not None and failure.cause is Cause.DIED and outcome.interrupted is None:
        sys.stderr.write(f"{failure.message}{failure.where}\n")
        return failure.exit_code
    finish(outcome)
    return 0


def launch_roles(
    role: Role,
    cluster: Cluster,
    payload: Payload,
    fds: tuple[int, ...],
    observer: Observer | None = None,
    recovery: Recovery | None = None,
) -> Outcome:
    """Run one role per worker to its end, and show their output by rank."""
    observer, recovery = observer or display("lines", every_seconds=5.0), recovery or Recovery()
    try:
        topology = Topology(cluster.workers, role)
        return run_topology(topology, cluster, observer, recovery, payload, fds, graceful=False)
    finally:
        observer.close()


def finish(outcome: Outcome, ways_on: str = "") -> None:
    """Raise the interrupt or failure that ended the roles, if any; see `raise_failure`."""
    if outcome.interrupted is signal.SIGINT:
        raise KeyboardInterrupt
    if outcome.interrupted is not None:
        raise SystemExit(128 + outcome.interrupted)
    if outcome.failure is not None:
        raise_failure(outcome.failure, ways_on)


def _anonymous_file() -> int:
    """Return the descriptor of an unnamed file, which the last process to close it frees."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("flambeau", 0)
    with tempfile.TemporaryFile() as file:
        descriptor = os.dup(file.fileno())
    os.set_inheritable(descriptor, True)
    return descriptor
