"""The role behind `flambeau run`: runs a user's script as if a launcher had started it."""

import atexit
import os
import signal
import socket
import subprocess
from typing import Any

from torch._C._distributed_c10d import TCPStore

from flambeau.clusters.attached.meeting_place import SECRET
from flambeau.clusters.child_process import ChildSpec
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.payloads import ScriptPayload
from flambeau.messaging import new_secret
from flambeau.roles.coordinator_store import CoordinatorStore
from flambeau.roles.process_group import TIMEOUT, set_rank_variables
from flambeau.roles.program import run_program

_ADDRESS = "address of the script's store"


def run_script(child: ChildSpec, coordinator: CoordinatorClient) -> dict[str, Any]:
    """Run the script as `__main__` with its arguments and a launcher's environment.

    Rank 0 serves the TCP store that scripts expect, on one interface only, so that the script's
    `init_process_group()` connects to it instead of listening on all interfaces.
    """
    set_rank_variables(coordinator)
    coordinator.wait_until_all_joined()
    keys = CoordinatorStore(coordinator, TIMEOUT)
    store = _serve(coordinator, child.site.host) if child.spec.rank == 0 else None
    if store is not None:
        keys.set(_ADDRESS, f"{store.host} {store.port} {new_secret().hex()}")
    host, port, secret = keys.get(_ADDRESS).decode().split()
    # Scripts that form a group again, with Horovod's interface, authenticate each other with it.
    os.environ.setdefault(SECRET, secret)
    os.environ.update(
        MASTER_ADDR=host,
        MASTER_PORT=port,
        TORCHELASTIC_USE_AGENT_STORE="True",
        TORCHELASTIC_RESTART_COUNT=str(child.spec.generation),
    )
    given = child.payload
    assert isinstance(given, ScriptPayload)
    try:
        if given.kind == "program":
            _run_other(given.program, given.arguments)
        else:
            _run_python(given)
    finally:
        del store
    return {}


def _run_python(given: ScriptPayload) -> None:
    """Run a Python program, and then the exit functions that libraries have registered.

    A failure is reported before them, since these functions can make other processes fail, too.
    """
    try:
        run_program(given.program, given.arguments, module=given.kind == "module")
    except SystemExit as end:
        if not end.code:
            atexit._run_exitfuncs()
        raise
    atexit._run_exitfuncs()


def _run_other(program: str, arguments: list[str]) -> None:
    """Run a program that is not written in Python, and exit as it did."""
    code = subprocess.run([program, *arguments], check=False).returncode
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):  # which cannot be handled
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    if code:
        raise SystemExit(code)


def _serve(coordinator: CoordinatorClient, host: str) -> TCPStore:
    """Serve a store at the address of this machine."""
    listener = socket.create_server((host, 0), backlog=1024)
    return TCPStore(
        host,
        listener.getsockname()[1],
        coordinator.spec.world,
        is_master=True,
        timeout=TIMEOUT,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
