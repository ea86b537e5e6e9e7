"""One of several processes that predict: `python -m flambeau.roles.predicting_worker`.

It is told over its stdin where to import from, what to predict with, and then part after part. It
answers on its stdout with a line of JSON for each batch and each part.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from flambeau.clusters.child_process import die_with_parent

TELL_SECONDS = 0.2


def main() -> int:
    """Predict what comes, until stdin ends; the exit code of the process."""
    die_with_parent()
    commands, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "w")
    # What the user's code prints must not be among the answers.
    os.dup2(2, 1)
    known = set(sys.path)
    sys.path.extend(path for path in json.loads(_message(commands)) if path not in known)
    try:
        return _serve(commands, answers)
    except Exception as error:  # noqa: BLE001 - told to the process that asked
        told = {"error": type(error).__name__, "message": str(error) or type(error).__name__}
        _tell(answers, {**told, "trace": traceback.format_exc()})
        return 1


def _serve(commands: IO[bytes], answers: IO[str]) -> int:
    import pickle

    payload = pickle.loads(_message(commands))
    waiting: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(commands, waiting), daemon=True).start()
    predict = _opened(payload)
    while True:
        part = pickle.loads(waiting.get())
        tell = _Progress(answers)
        predict(part, tell)
        tell.done()
        _tell(answers, {"part": part.index})


def _opened(payload: dict[str, Any]) -> Callable[[Any, Callable[[int], None]], None]:
    from flambeau.checkpoint import RunDirectory
    from flambeau.inference.writing import write_predictions
    from flambeau.runs.prediction import Prediction
    from flambeau.runs.trained_run import open_given, read_settings

    run = RunDirectory(payload["run"])
    settings = read_settings(run)
    source = payload["source"] or open_given(run, settings, payload["data"])
    size = payload["options"].batch_size
    prediction = Prediction(run, settings, payload["checkpoint"], source, size)

    def predict(part: Any, told: Callable[[int], None]) -> None:
        def batches() -> Any:
            for batch in prediction.batches(part):
                told(batch.num_rows)
                yield batch

        write_predictions(batches(), Path(payload["out"]) / part.file_name)

    return predict


def _listen(commands: IO[bytes], waiting: "SimpleQueue[bytes]") -> None:
    """Collect what comes; when the pipe ends, whoever asked is done or gone."""
    while message := _message(commands):
        waiting.put(message)
    os.killpg(0, signal.SIGKILL)


def _message(commands: IO[bytes]) -> bytes:
    """The next message, empty when there will be none."""
    length = commands.read(8)
    return commands.read(int.from_bytes(length, "little")) if len(length) == 8 else b""


class _Progress:
    """Tells numbers of rows, a few times a second."""

    def __init__(self, answers: IO[str]) -> None:
        self._answers, self._rows, self._last = answers, 0, time.monotonic()

    def __call__(self, rows: int) -> None:
        self._rows += rows
        if time.monotonic() - self._last > TELL_SECONDS:
            self.done()

    def done(self) -> None:
        """Tell what has not been told."""
        if self._rows:
            _tell(self._answers, {"rows": self._rows})
        self._rows, self._last = 0, time.monotonic()


def _tell(answers: IO[str], what: dict[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
