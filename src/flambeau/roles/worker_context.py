"""The context that all parts of a worker share."""

from dataclasses import dataclass

import torch

from flambeau.checkpoint import RunDirectory
from flambeau.config import JobSettings
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.payloads import Site
from flambeau.strategies.group import Group


@dataclass(frozen=True)
class WorkerContext:
    """A worker's run, connection to the coordinator, group of workers, device and site."""

    settings: JobSettings
    run: RunDirectory
    coordinator: CoordinatorClient
    group: Group
    device: torch.device
    site: Site

    def warn(self, text: str) -> None:
        """Report a warning to the user, once for all workers."""
        if self.group.first:
            self.coordinator.report("warning", text=text)
