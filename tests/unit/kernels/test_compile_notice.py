import logging
import threading
import time

import numba
import pytest
from numba.core import event

from flambeau.kernels import compile_notice


def compile_something() -> None:
    numba.njit(lambda x: x + 1)(1)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    happened = threading.Event()
    monkeypatch.setattr(compile_notice, "_tell", happened.set)
    return happened


def test_a_long_wait_is_told_of_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, told: threading.Event
) -> None:
    monkeypatch.setattr(compile_notice, "TELL_AFTER_SECONDS", 0.001)
    with event.install_listener("numba:compile", compile_notice.CompileNotice()):
        compile_something()
        assert told.wait(20)
        told.clear()
        compile_something()
    assert not told.is_set(), "once is enough"


def test_a_short_one_is_not(told: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_notice, "TELL_AFTER_SECONDS", 1000.0)
    notice = compile_notice.CompileNotice()
    with event.install_listener("numba:compile", notice):
        compile_something()
    assert not told.is_set()
    assert 0.0 < notice._spent < time.monotonic()


def test_the_text_goes_to_the_log() -> None:
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("flambeau")
    logger.addHandler(handler)
    try:
        compile_notice._tell()
    finally:
        logger.removeHandler(handler)
    assert said == ["compiling kernels, which happens once on this machine"]
