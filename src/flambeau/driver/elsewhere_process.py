"""A process that drives a job for another one; see `flambeau.driver.elsewhere`.

It reads the call from standard input, which stays open. When that closes, the process that
started this one is gone, and the job saves and stops, unless Ray ends this process first.
"""

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flambeau.clusters.ray.driver import read_call
from flambeau.config import Cluster
from flambeau.driver.elsewhere import dumps, portable, retold


def main() -> int:
    """Drive the job and write its result or error to a file; return the exit code."""
    # Workers of Ray ignore or block signals, and this process has inherited that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    data = read_call(sys.stdin.buffer)
    threading.Thread(target=_end_with, args=(0,), name="flambeau-life", daemon=True).start()
    sys.path.insert(0, os.getcwd())
    drive: Callable[[Cluster], Any]
    outcome: Path
    back: Mapping[str, str]
    failed = False
    drive, cluster, back, outcome = pickle.loads(data)
    try:
        value = drive(cluster)
    except BaseException as error:  # noqa: BLE001 - the client raises it
        failed, value = True, portable(retold(error.with_traceback(None), back))
    places = {Path(there): Path(here) for there, here in back.items()}
    outcome.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    outcome.write_bytes(dumps((failed, value), places))
    return int(failed)


def _end_with(pipe: int) -> None:
    while os.read(pipe, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
