import os
import subprocess
import sys

import pytest

from flambeau.observe import Event, Observer, Observers


class Recorder(Observer):
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.seen: list[str] = []

    def observe(self, event: Event) -> None:
        self._note(event.kind)

    def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        self.seen.append(what)
        if self.error is not None:
            raise self.error


def test_every_observer_is_told_every_event_in_order() -> None:
    recorders = [Recorder(), Recorder()]
    observers = Observers(list(recorders))
    observers.observe(Event("epoch_start", 1.0, {"epoch": 0}))
    observers.observe(Event("epoch_end", 2.0, {"epoch": 0}))
    assert [recorder.seen for recorder in recorders] == [["epoch_start", "epoch_end"]] * 2


def test_observers_are_told_in_the_order_given() -> None:
    shared: list[str] = []
    recorders = [Recorder(), Recorder()]
    recorders[0]._note = lambda what: shared.append("first")  # type: ignore[method-assign]
    recorders[1]._note = lambda what: shared.append("second")  # type: ignore[method-assign]
    Observers(list(recorders)).observe(Event("warning", 0.0, {"text": ""}))
    assert shared == ["first", "second"]


def test_all_are_closed_when_one_raises_and_its_error_is_raised() -> None:
    recorders = [Recorder(), Recorder(OSError("disk full")), Recorder()]
    with pytest.raises(OSError, match="disk full"):
        Observers(list(recorders)).close()
    assert all(recorder.seen == ["close"] for recorder in recorders)


def test_all_are_told_when_one_raises_and_its_error_is_raised() -> None:
    recorders = [Recorder(OSError("disk full")), Recorder()]
    with pytest.raises(OSError, match="disk full"):
        Observers(list(recorders)).observe(Event("warning", 0.0, {"text": ""}))
    assert recorders[1].seen == ["warning"]


def test_importing_observe_imports_neither_torch_nor_tensorboard() -> None:
    code = "import sys, flambeau.observe; print({'torch', 'tensorboard'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, env=environment, text=True, timeout=60) == "set()\n"
