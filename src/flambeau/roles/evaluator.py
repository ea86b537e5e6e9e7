"""The evaluator: a process that follows a run's checkpoints and evaluates each."""

from typing import Any

from flambeau.checkpoint import RunDirectory
from flambeau.clusters.child_process import ChildSpec
from flambeau.config import JobSettings
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.runs.follower import Follower


def follow_run(child: ChildSpec, coordinator: CoordinatorClient) -> dict[str, Any]:
    """The evaluator role of a job: follow until the workers are done and all is evaluated."""
    settings = JobSettings.parse(child.payload["settings"])
    run = RunDirectory(child.payload["run_dir"])
    follower = Follower(run, settings, coordinator.report)
    follower.follow(coordinator.wait_for_stop)
    return {"metrics": follower.metrics}
