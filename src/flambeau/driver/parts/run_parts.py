"""Running a job whose processes work on independent parts."""

from flambeau.config import Cluster, Recovery
from flambeau.coordination.payloads import Payload
from flambeau.driver.launching import run_topology
from flambeau.driver.run import finish
from flambeau.driver.topology import Topology
from flambeau.observe import Observer, display

#: The least number of lost processes that are replaced, since any part can be repeated.
RESTARTS = 3


def run_parts(
    topology: Topology,
    cluster: Cluster,
    payload: Payload,
    recovery: Recovery | None = None,
    observer: Observer | None = None,
    *,
    resumes: bool,
) -> None:
    """Run processes until all parts of the topology's coordinator are complete.

    The part of a lost process is repeated by another one. If too many are lost, the error says
    whether the same command resumes. Without an `observer`, progress is shown as lines.
    """
    own = recovery or Recovery()
    recovery = own.model_copy(update={"max_restarts": max(RESTARTS, own.max_restarts)})
    shown = display("lines", every_seconds=5.0) if observer is None else observer
    try:
        outcome = run_topology(topology, cluster, shown, recovery, payload, graceful=False)
    finally:
        if observer is None:
            shown.close()
    finish(outcome, ". Run the same command to resume." if resumes else "")
