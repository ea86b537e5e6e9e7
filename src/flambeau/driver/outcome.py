"""How a job ended."""

import signal
from dataclasses import dataclass, field
from typing import Any

from flambeau.coordination.failures import Failure


@dataclass
class Outcome:
    """How a job ended. `failure` and `interrupted` are both unset when it went well.

    `status` is what the last worker reported: "finished" or "stopped".

    `summaries` are what workers said at their end, by rank, `servers` the same by shard;
    `coordinator_summary` and `rows` come from whoever conducted them, `places` from the cluster.
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
        """Whether early stopping or a callback ended the training, and not a signal."""
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
