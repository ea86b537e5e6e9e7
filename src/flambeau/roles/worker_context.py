"""Where a worker is, as all its parts know it."""

from dataclasses import dataclass

import torch

from flambeau.checkpoint import RunDirectory
from flambeau.config import JobSettings
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.payloads import Site
from flambeau.strategies.group import Group


@dataclass(frozen=True)
class WorkerContext:
    """Where a worker is: its run, its link to the coordinator, the other workers, its device."""

    settings: JobSettings
    run: RunDirectory
    coordinator: CoordinatorClient
    group: Group
    device: torch.device
    site: Site

    def warn(self, text: str) -> None:
        """Tell the user, once for all workers."""
        if self.group.first:
            self.coordinator.report("warning", text=text)
