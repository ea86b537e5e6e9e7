"""The events of a run, and the interface of their observers.

The kinds of events and their fields:

    job_start    name, workers, batch_size, global_batch, steps_total (None: unknown), epochs,
                 run_dir, resumed_step (0: a new run); optional: train_rows (rows per epoch),
                 skipped_rows (invalid rows of the data that were left out)
    spooled      rows {frame: rows}, bytes, agents, nulls {frame: {column: rows}}: all agents have
                 written their rows of data frames to files
    places       places {name: {agents (numbers), reaches_driver ("directly" or "through ssh")}}:
                 where agents are started, if the cluster reports it (Ssh)
    generation   number, started (per agent: host, cores, roles that it starts)
    epoch_start  epoch
    epoch_end    epoch
    progress     step, epoch, steps_total, rows (so far), rows_per_second (all workers), loss, lr,
                 and since the last progress event, in seconds per step: data_seconds,
                 compute_seconds, communication_seconds
    evaluation   step, epoch, metrics {name: value}, rows; optional: seconds (its duration)
    scalars      step, values {tag: value}: scalars of the user's code
    checkpoint   step, path
    best         step, metric, value
    server       every 2 seconds from each shard of the parameter server, counted since its start:
                 shard, shards (their number), version (updates it has made), pulls, pushes,
                 rows_pulled, rows_pushed, rounds (each omitted while it is 0), busy_seconds,
                 staleness {updates made since a gradient's values were read: gradients}, tables
                 {name: {rows, bytes, admitted, rejected, evicted}}
    client       every 2 seconds from each worker that uses servers, counted since its start: rank,
                 pulls, pushes, rows_pulled, rows_pushed (each omitted while it is 0),
                 outcome_<result> (gradients with this result), ids_seen, ids_distinct,
                 prefetch_hits, prefetch_misses, pull_seconds_p50, pull_seconds_p99,
                 requests_resent, updates_lost (with servers that were replaced)
    worker       every 10 seconds from each worker: rank, steps (its own, since its start),
                 seconds_per_step {data, dense, sparse, wait} (the mean of these steps),
                 memory_bytes (peak)
    exception    rank, role, error (its type), text, traceback (with all frames)
    worker_lost  rank, role ("worker", "server" or "evaluator"), reason, cause ("exception",
                 "died", "silent", "stuck", "deadlock" or "lost_peer"); for a lost agent, where
                 known: place (where the agent ran, under the cluster's own key: with Spark it is
                 executor), host
    restart      generation, reason; with rank and role, only of this process and those that were
                 lost within a second of it; with agents (numbers), only of these; optional: delay
                 (seconds until the restart)
    log          rank, role, stream ("stdout" or "stderr"), text
    warning      text
    preparation  out, rows, resumed (whether it resumes an interrupted call): the start of preparing
                 features
    stage_start  stage (its title), number (from 1), stages, rows_total (0: it reads no rows),
                 pieces_total
    stage        a few times per second during a stage: stage, number, stages, rows, rows_total,
                 pieces, pieces_total, rows_per_second, seconds_left (None: unknown)
    stage_end    stage, number, stages, rows, seconds, rows_per_second, peak_bytes (the sum of the
                 peak memory of its processes)
    prepared     out, rows {subset: rows}, seconds, rows_per_second, peak_bytes, sizes {column: size
                 of its vocabulary}
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
    """An event of a run; `time` is in seconds since 1970."""

    kind: str
    time: float
    fields: dict[str, Any]


class Observer(ABC):
    """A receiver of all events of a run, in order; it is closed once at the end.

    Observers ignore events of unknown kinds.
    """

    @abstractmethod
    def observe(self, event: Event) -> None:
        """Handle `event`, and return quickly: the controller waits."""

    @abstractmethod
    def close(self) -> None:
        """Write pending output and release files and the terminal."""


@final
class Observers(Observer):
    """Several observers as one. If one raises, the others still get the event before the error."""

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
