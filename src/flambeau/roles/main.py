"""The entry point of every role: `python -m flambeau.roles.main FD`."""

import importlib
import os
import socket
import sys
import threading
from typing import Any

from flambeau.clusters.affinity.picture import ranges
from flambeau.clusters.child_process import ChildSpec, attach
from flambeau.clusters.interfaces import interface_of
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.protocol import Report, RoleDone, RoleFailed, RoleJoined
from flambeau.errors import FlambeauError, JobFailedError, UserError
from flambeau.kernels.cores import usable_cores
from flambeau.roles.role_modules import ROLES
from flambeau.roles.tracebacks import (
    is_of_the_machine,
    recognised,
    users_traceback,
    whole_traceback,
)

_LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "gloo", "Broken pipe")


def main(pipe: int) -> int:
    """Run one role to its end; return the exit code of the process."""
    child = attach(pipe)
    _use_interface(child.site.host)
    coordinator = CoordinatorClient(
        child.coordinator, child.secret, RoleJoined(child.spec, os.getpid())
    )
    try:
        if child.spec.role.in_group:
            coordinator.send(Report(child.spec, "bound", _own_binding()))
        summary = _run(child, coordinator)
        coordinator.send(RoleDone(child.spec, summary.pop("status", "finished"), summary))
        return 0
    except SystemExit as exit_request:
        return _exit_code(exit_request)
    except BaseException as error:  # noqa: BLE001 - reported to the driver, which shows it
        coordinator.send(_failure(child, error))
        return 1
    finally:
        coordinator.close()


def _own_binding() -> dict[str, Any]:
    threads = os.environ.get("OMP_NUM_THREADS")
    return {"host": socket.gethostname(), "cpus": ranges(usable_cores()), "threads": threads}


def _run(child: ChildSpec, coordinator: CoordinatorClient) -> dict[str, Any]:
    module, _, function = ROLES[child.spec.role].partition(":")
    run = getattr(importlib.import_module(module), function)
    summary: dict[str, Any] = run(child, coordinator)
    return summary


def _failure(child: ChildSpec, error: BaseException) -> RoleFailed:
    message = str(error) or type(error).__name__
    lost = isinstance(error, RuntimeError | OSError) and any(m in message for m in _LOST_PEER)
    known = None if lost else recognised(error)
    ours = isinstance(error, FlambeauError)
    return RoleFailed(
        spec=child.spec,
        error=type(error).__name__ if ours or known is None else JobFailedError.__name__,
        message=known or message,
        traceback=users_traceback(error) if known is None else "",
        whole_traceback=whole_traceback(error),
        # A restart helps with none of these; the same part would raise the same error again.
        user_error=isinstance(error, UserError | JobFailedError)
        or child.spec.role.takes_parts
        or (known is not None and not ours)
        or (ours and is_of_the_machine(error)),
        lost_peer=lost,
    )


def _exit_code(request: SystemExit) -> int:
    if request.code is None or isinstance(request.code, int):
        return request.code or 0
    sys.stderr.write(f"{request.code}\n")
    return 1


def _use_interface(host: str) -> None:
    interface = interface_of(host)
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


if __name__ == "__main__":
    code = main(int(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    if threading.active_count() > 1:
        # Threads of libraries must not keep alive a role that has reported its end.
        os._exit(code)
    sys.exit(code)
