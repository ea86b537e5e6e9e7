"""What happens in a run, and the seam to those who want to know.

The kinds of events and their fields:

    job_start    name, workers, batch_size, global_batch, steps_total (None: unknown), epochs,
                 run_dir, resumed_step (0: a new run); optional: train_rows (rows of an epoch),
                 skipped_rows (bad rows of the data that were left out)
    spooled      rows {frame: rows}, bytes, agents, nulls {frame: {column: rows}}: a data frame is
                 in files of all agents
    places       places {name: {agents (numbers), reaches_driver ("directly" or "through ssh")}}:
                 where agents are started, if the cluster knows (Ssh)
    generation   number, started (of each agent: host, cores, roles that it starts)
    epoch_start  epoch
    epoch_end    epoch
    progress     step, epoch, steps_total, rows (so far), rows_per_second (all workers), loss, lr,
                 and since the last one, in seconds per step: data_seconds, compute_seconds,
                 communication_seconds
    evaluation   step, epoch, metrics {name: value}, rows; optional: seconds (how long it took)
    scalars      step, values {tag: value}: the user's own
    checkpoint   step, path
    best         step, metric, value
    server       every 2 seconds from each shard of the parameter server, counted since its start:
                 shard, shards (how many there are), version (updates it has made), pulls, pushes,
                 rows_pulled, rows_pushed, rounds (each left out as long as it is 0), busy_seconds,
                 staleness {updates made since a gradient's values were read: gradients}, tables
                 {name: {rows, bytes, admitted, rejected, evicted}}
    client       every 2 seconds from each worker that uses servers, counted since its start: rank,
                 pulls, pushes, rows_pulled, rows_pushed (each left out as long as it is 0),
                 outcome_<what became of gradients>, ids_seen, ids_distinct, prefetch_hits,
                 prefetch_misses, pull_seconds_p50, pull_seconds_p99, requests_resent, updates_lost
                 (with servers that were replaced)
    worker       every 10 seconds from each worker: rank, steps (of its own, since its start),
                 seconds_per_step {data, dense, sparse, wait} (the mean of these steps),
                 memory_bytes (the most it has had)
    exception    rank, role, error (its type), text, traceback (with all frames)
    worker_lost  rank, role ("worker", "server" or "evaluator"), reason, cause ("exception",
                 "died", "silent", "stuck", "deadlock" or "lost_peer"); when an agent was
                 lost, where known: place (what it ran on, by the cluster's name for it; with
                 Spark the key is executor), host
    restart      generation, reason; with rank and role, of this process alone and those that were
                 lost within a second of it; with agents (numbers), of these alone; optional: delay
                 (seconds until then)
    log          rank, role, stream ("stdout" or "stderr"), text
    warning      text
    preparation  out, rows, resumed (whether an earlier call was interrupted): features are prepared
    stage_start  stage (its title), number (from 1), stages, rows_total (0: it reads no rows),
                 pieces_total
    stage        of work in stages, a few times a second: stage, number, stages, rows, rows_total,
                 pieces, pieces_total, rows_per_second, seconds_left (None: unknown)
    stage_end    stage, number, stages, rows, seconds, rows_per_second, peak_bytes (the largest
                 memory of each of its processes, added up)
    prepared     out, rows {subset: rows}, seconds, rows_per_second, peak_bytes, sizes {column: how
                 many numbers its values have}
    job_end      status ("finished", "stopped_early", "stopped" or "failed"), step, error (or
                 None), metrics
"""

from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True)
class Event:
    """One thing that happened; `time` is in seconds since 1970."""

    kind: str
    time: float
    fields: dict[str, Any]


class Observer(ABC):
    """Is told every event of a run, in order, and closed once at its end.

    Kinds that an observer does not know are none of its business: it ignores them.
    """

    @abstractmethod
    def observe(self, event: Event) -> None:
        """Take note of `event`; returns soon, since the controller waits."""

    @abstractmethod
    def close(self) -> None:
        """Write out what is pending and let go of files and the terminal."""


@final
class Observers(Observer):
    """Several observers as one. If one raises, the others are still told before the error is."""

    def __init__(self, observers: list[Observer]) -> None:
        self._observers = observers

    def observe(self, event: Event) -> None:
        with ExitStack() as calls:
            for observer in reversed(self._observers):
                calls.callback(observer.observe, event)

    def close(self) -> None:
        with ExitStack() as calls:
            for observer in reversed(self._observers):
                calls.callback(observer.close)
