"""Logs in MLPerf's format: lines of `:::MLLOG {json}`."""

from pathlib import Path
from typing import Any, final

import msgspec

from flambeau.observe.event import Event, Observer

_START, _END, _POINT = "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"


@final
class MLPerfLog(Observer):
    """A file to which the lines of a run are appended. A block is training between evaluations."""

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._in_block = False

    def observe(self, event: Event) -> None:
        match event.kind:
            case "job_start":
                self._job_start(event)
            case "epoch_start":
                self._line(event.time, _START, "epoch_start", epoch_num=event.fields["epoch"])
            case "epoch_end":
                self._line(event.time, _END, "epoch_stop", epoch_num=event.fields["epoch"])
            case "evaluation":
                self._evaluation(event)
            case "job_end":
                self._job_end(event)
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _job_start(self, event: Event) -> None:
        self._line(event.time, _START, "run_start")
        self._line(event.time, _POINT, "global_batch_size", event.fields["global_batch"])
        if event.fields.get("train_rows") is not None:
            self._line(event.time, _POINT, "train_samples", event.fields["train_rows"])
        self._start_block(event.time, event.fields["resumed_step"] or 0)

    def _evaluation(self, event: Event) -> None:
        step, epoch = event.fields["step"], event.fields["epoch"]
        begin = event.time - event.fields.get("seconds", 0.0)
        self._stop_block(begin, step)
        self._line(begin, _START, "eval_start", epoch_num=epoch, step_num=step)
        accuracy = _accuracy(event.fields["metrics"])
        if accuracy is not None:
            self._line(
                event.time, _POINT, "eval_accuracy", accuracy, epoch_num=epoch, step_num=step
            )
        self._line(event.time, _END, "eval_stop", epoch_num=epoch, step_num=step)
        self._start_block(event.time, step)

    def _job_end(self, event: Event) -> None:
        self._stop_block(event.time, event.fields["step"])
        # MLPerf has only these two values.
        status = "success" if event.fields["status"] in ("finished", "stopped_early") else "aborted"
        self._line(event.time, _END, "run_stop", status=status)

    def _start_block(self, time: float, step: int) -> None:
        self._line(time, _START, "block_start", step_num=step)
        self._in_block = True

    def _stop_block(self, time: float, step: int) -> None:
        if self._in_block:
            self._line(time, _END, "block_stop", step_num=step)
        self._in_block = False

    def _line(
        self, time: float, event_type: str, key: str, value: Any = None, **metadata: Any
    ) -> None:
        record = {
            "namespace": "",
            "time_ms": int(time * 1000),
            "event_type": event_type,
            "key": key,
            "value": value,
            "metadata": metadata,
        }
        self._file.write(b":::MLLOG " + msgspec.json.encode(record) + b"\n")


def _accuracy(metrics: dict[str, Any]) -> float | None:
    """Return what MLPerf calls accuracy: the first metric that is accuracy or AUC."""
    for name, value in metrics.items():
        if name in ("accuracy", "auc") and value is not None:
            return float(value)
    return None
