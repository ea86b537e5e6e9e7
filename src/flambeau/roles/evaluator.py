"""The evaluator: a process that follows a run's checkpoints and evaluates each."""

from typing import Any

from flambeau.checkpoint import RunDirectory
from flambeau.clusters.child_process import ChildSpec
from flambeau.config import JobSettings
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.payloads import TrainingPayload
from flambeau.runs.follower import Follower


def follow_run(child: ChildSpec, coordinator: CoordinatorClient) -> dict[str, Any]:
    """Evaluate checkpoints until the workers are done and all checkpoints are evaluated."""
    payload = child.payload
    assert isinstance(payload, TrainingPayload)
    settings, run = JobSettings.parse(payload.settings), RunDirectory(child.site.run_dir)
    follower = Follower(run, settings, coordinator.report)
    follower.follow(coordinator.wait_for_stop)
    return {"metrics": follower.metrics}
