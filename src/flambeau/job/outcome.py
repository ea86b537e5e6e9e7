"""How a job ended."""

import signal
from dataclasses import dataclass, field
from typing import Any

from flambeau.coordination.failures import Failure


@dataclass
class Outcome:
    """How a job ended. `failure` and `interrupted` are both unset when it went well.

    `summaries` are what workers said at their end, by rank, `servers` the same by shard;
    `conducted` and `rows` come from whoever conducted them.
    """

    summaries: dict[int, dict[str, Any]] = field(default_factory=dict)
    servers: dict[int, dict[str, Any]] = field(default_factory=dict)
    conducted: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, int] | None = None
    status: str = "finished"
    failure: Failure | None = None
    interrupted: signal.Signals | None = None
    restarts: int = 0
