"""The role behind `flambeau run`: a user's script, as if a launcher had started it."""

import os
import runpy
import socket
import sys
from pathlib import Path
from typing import Any

from flambeau.clusters.child import ChildSpec
from flambeau.coordination.link import Link
from flambeau.job.process_group import open_store, set_rank_variables


def run_script(child: ChildSpec, link: Link, listener: socket.socket | None) -> dict[str, Any]:
    """Run the script as `__main__` with its arguments and a launcher's environment.

    The rendezvous store is served here, on one interface, so that the script's
    `init_process_group()` connects to it instead of listening everywhere.
    """
    path, arguments = child.payload["script"], child.payload["arguments"]
    set_rank_variables(link)
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    store = open_store(link, listener) if child.spec.rank == 0 else None
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        runpy.run_path(path, run_name="__main__")
    finally:
        del store
    return {}
