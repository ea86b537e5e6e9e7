"""Scalars for TensorBoard, without torch or TensorFlow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from flambeau.errors import MissingDependencyError
from flambeau.observe.event import Event, Observer
from flambeau.observe.server_stats import Shards, client_numbers

_PROGRESS_TAGS = {
    "loss": "train/loss",
    "lr": "train/lr",
    "rows_per_second": "train/rows_per_second",
    "data_seconds": "time/data",
    "compute_seconds": "time/compute",
    "communication_seconds": "time/communication",
}


@final
class TensorBoardScalars(Observer):
    """An event file with `train/*`, `time/*`, `valid/*` and the user's own scalars.

    With a parameter server it also has `server/<shard>/*`, `table/<name>/*` and `client/<rank>/*`,
    at the last reported step. After a resume or a restart, points of steps that are trained again
    are marked as replaced.
    """

    def __init__(self, directory: str | Path) -> None:
        self._writer = _event_file(directory)
        self._rewound = False
        self._step = 0
        self._shards = Shards()

    def observe(self, event: Event) -> None:
        match event.kind:
            case "job_start":
                self._step = event.fields["resumed_step"] or 0
                self._rewound = bool(self._step)
            case "restart":
                self._rewound = "rank" not in event.fields  # else the others have continued
            case "progress":
                self._progress(event)
            case "evaluation":
                metrics = event.fields["metrics"]
                self._scalars(event, {f"valid/{name}": value for name, value in metrics.items()})
                self._writer.flush()
            case "scalars":
                self._scalars(event, event.fields["values"])
            case "server":
                self._server(event)
            case "client":
                rank, numbers = event.fields["rank"], client_numbers(event.fields)
                self._scalars(event, _under(f"client/{rank}", numbers))

    def close(self) -> None:
        self._writer.close()

    def _server(self, event: Event) -> None:
        shard = event.fields["shard"]
        self._scalars(event, _under(f"server/{shard}", self._shards.add(event)))
        # Once for all shards, when the last of them has reported.
        if shard == event.fields["shards"] - 1:
            for name, counters in self._shards.tables().items():
                self._scalars(event, _under(f"table/{name}", counters))

    def _progress(self, event: Event) -> None:
        self._step = event.fields["step"]
        if self._rewound:
            self._replace_from(event)
            self._rewound = False
        named = {tag: event.fields.get(name) for name, tag in _PROGRESS_TAGS.items()}
        self._scalars(event, named)

    def _scalars(self, event: Event, values: Mapping[str, Any]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        points = [
            Summary.Value(tag=tag, simple_value=float(value))
            for tag, value in values.items()
            if value is not None
        ]
        if points:
            self._add(event, summary=Summary(value=points))

    def _replace_from(self, event: Event) -> None:
        """Mark points of this step and later ones that TensorBoard has read as replaced."""
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._add(event, session_log=SessionLog(status=SessionLog.START))

    def _add(self, event: Event, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event as Record

        step = event.fields.get("step", self._step)
        self._writer.add_event(Record(wall_time=event.time, step=step, **content))


def _under(place: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{place}/{name}": value for name, value in values.items()}


def _event_file(directory: str | Path) -> Any:
    # Imported here because it takes about 0.2 s, which a run without TensorBoard need not pay.
    try:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"scalars for TensorBoard need {error.name}, which is not installed; "
            "pip install tensorboard, or turn them off with observe.tensorboard=False"
        ) from error
    return EventFileWriter(str(directory))
