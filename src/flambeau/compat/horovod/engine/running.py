"""The engine of this process, which `init` creates and `shutdown` stops."""

import atexit
import threading
from dataclasses import dataclass, field

from flambeau.compat.horovod.engine.engine import Engine, Place
from flambeau.compat.horovod.engine.environment import horovod_settings
from flambeau.compat.horovod.engine.meeting import met


@dataclass
class _Running:
    engine: Engine | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    at_exit: bool = False


_running = _Running()


def start() -> Engine:
    """Return the engine; if there is none, create it and connect to the other ranks."""
    with _running.lock:
        if _running.engine is None:
            _running.engine = met(horovod_settings())
        if not _running.at_exit:
            _running.at_exit = True
            atexit.register(stop)
        return _running.engine


def stop() -> None:
    """Stop the engine, if there is one."""
    with _running.lock:
        engine, _running.engine = _running.engine, None
    if engine is not None:
        engine.shutdown()


def is_running() -> bool:
    """Return whether there is an engine."""
    return _running.engine is not None


def engine() -> Engine:
    """Return the engine."""
    found = _running.engine
    if found is None:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return found


def place() -> Place:
    """Return the position of this rank."""
    return engine().place
