"""Work as it travels to tasks of an engine, and where a process keeps it for further tasks."""

import hashlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import cloudpickle

from flambeau.features.engines.engine_frame import Work

#: What this process has loaded, the last that was used last. Fitted pipelines can be large.
_loaded: dict[str, Work] = {}
_MOST_LOADED = 2


@final
@dataclass(frozen=True)
class PackedWork:
    """Pickled work, and a digest of it."""

    digest: str
    data: bytes


def pack(work: Work) -> PackedWork:
    """Return work as it travels."""
    data = cloudpickle.dumps(work)
    return PackedWork(hashlib.sha256(data).hexdigest(), data)


def load_work(digest: str, fetch: Callable[[], bytes]) -> Work:
    """Return work that was packed, which `fetch` gets unless this process has it already."""
    work = _loaded.pop(digest, None)
    if work is None:
        while len(_loaded) >= _MOST_LOADED:
            del _loaded[next(iter(_loaded))]
        work = pickle.loads(fetch())
    _loaded[digest] = work
    return work
