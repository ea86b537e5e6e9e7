"""Serialized work for engine tasks, and a cache of loaded work in each process."""

import hashlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import cloudpickle

from flambeau.features.engines.engine_frame import Work

#: Work that this process has loaded, most recently used last. Fitted pipelines can be large.
_loaded: dict[str, Work] = {}
_MOST_LOADED = 2


@final
@dataclass(frozen=True)
class PackedWork:
    """Pickled work, and a digest of it."""

    digest: str
    data: bytes


def pack(work: Work) -> PackedWork:
    """Return work in serialized form."""
    data = cloudpickle.dumps(work)
    return PackedWork(hashlib.sha256(data).hexdigest(), data)


def load_work(digest: str, fetch: Callable[[], bytes]) -> Work:
    """Return packed work, from `fetch` unless this process has loaded it already."""
    work = _loaded.pop(digest, None)
    if work is None:
        while len(_loaded) >= _MOST_LOADED:
            del _loaded[next(iter(_loaded))]
        work = pickle.loads(fetch())
    _loaded[digest] = work
    return work
