"""How a job ended."""

import signal
from dataclasses import dataclass, field
from typing import Any

from flambeau.coordination.failures import Failure


@dataclass
class Outcome:
    """The end of a job. `failure` and `interrupted` are both unset if it succeeded.

    `status` is the last worker's: "finished" or "stopped".

    `summaries` are the final reports of workers, by rank, `servers` those of servers, by shard;
    `coordinator_summary` and `rows` come from the coordinator, `places` from the cluster.
    """

    summaries: dict[int, dict[str, Any]] = field(default_factory=dict)
    servers: dict[int, dict[str, Any]] = field(default_factory=dict)
    coordinator_summary: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, int] | None = None
    places: dict[str, dict[str, Any]] = field(default_factory=dict)
    status: str = "finished"
    failure: Failure | None = None
    interrupted: signal.Signals | None = None
    restarts: int = 0

    @property
    def stopped_early(self) -> bool:
        """Return whether early stopping or a callback, not a signal, ended the training."""
        by_metric = self.summaries.get(0, {}).get("stopped_early", False)
        return self.interrupted is None and (by_metric or self.status == "stopped")

    @property
    def ending(self) -> str:
        """The status of the job: "finished", "stopped_early", "stopped" or "failed"."""
        if self.failure is not None:
            return "failed"
        if self.interrupted is not None:
            return "stopped"
        return "stopped_early" if self.stopped_early else "finished"
