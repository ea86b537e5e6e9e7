"""A real Ray of several nodes on this machine, each with a loopback address of its own."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

CORES = 2
START_SECONDS = 60.0
STOP_SECONDS = 5.0
#: Small, since nodes of one machine share its memory.
STORE_BYTES = 200 << 20
#: A node that is killed is noticed after a few of these, not after a quarter of a minute.
CHECKS = {"RAY_health_check_period_ms": "500"}


@dataclass
class Nodes:
    """Nodes, of which the first is the head; what they write is below a folder."""

    folder: Path
    address: str
    client_port: int
    #: What programs need to join it.
    environment: dict[str, str]
    #: Where jobs are submitted to, if that is possible.
    dashboard_port: int | None = None
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def add(self, host: str, cores: int = CORES) -> None:
        """Start a node at a loopback address; the first one is the head."""
        joins = [f"--address={self.address}"]
        if not self.started:
            port = self.address.rpartition(":")[2]
            joins = ["--head", f"--port={port}", *self._dashboard(host)]
            joins += [f"--temp-dir={self.folder}", f"--ray-client-server-port={self.client_port}"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *joins]
        command += [f"--node-ip-address={host}", f"--num-cpus={cores}", "--disable-usage-stats"]
        command += [f"--object-store-memory={STORE_BYTES}", "--dashboard-agent-listen-port=0"]
        with (self.folder / f"{host}.out").open("wb") as out:
            self.started[host] = subprocess.Popen(
                command,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **self.environment, **CHECKS},
            )
        self._await(host)

    def _dashboard(self, host: str) -> list[str]:
        if self.dashboard_port is None:
            return ["--include-dashboard=false"]
        where = [f"--dashboard-host={host}", f"--dashboard-port={self.dashboard_port}"]
        return ["--include-dashboard=true", *where]

    def _await(self, host: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while "runtime started" not in (said := (self.folder / f"{host}.out").read_text()):
            assert self.started[host].poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.1)

    def kill(self, host: str) -> None:
        """Cut a node's power: kill its raylet and all its workers at once."""
        process = psutil.Process(self.started[host].pid)
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.started.pop(host).wait()

    def stop(self) -> None:
        """End all nodes."""
        for process in reversed(self.started.values()):
            process.send_signal(signal.SIGTERM)
        for host, process in list(self.started.items()):
            try:
                process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:  # Ray waits for actors of its own
                self.kill(host)


@contextmanager
def running(nodes: int = 2, *, dashboard: bool = False) -> Iterator[Nodes]:
    """Start a Ray with nodes at 127.0.0.2, 127.0.0.3 and so on."""
    port, client_port, dashboard_port = _free_ports(3)
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # sockets have short names
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    address = f"127.0.0.2:{port}"
    environment = {
        "RAY_ADDRESS": address,
        "RAY_AUTH_MODE": "token",
        # A busy machine takes more than Ray's 30 s to start the process that serves a client.
        "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "120",
        "RAY_AUTH_TOKEN_PATH": str(token),
    }
    shown_at = dashboard_port if dashboard else None
    found = Nodes(folder, address, client_port, environment, shown_at)
    try:
        for number in range(nodes):
            found.add(f"127.0.0.{number + 2}")
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [socket.create_server(("127.0.0.2", 0)) for _ in range(count)]
        for each in sockets:
            stack.enter_context(each)
        return [each.getsockname()[1] for each in sockets]
