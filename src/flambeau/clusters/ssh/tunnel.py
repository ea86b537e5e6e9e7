"""A tunnel from a host to the driver through ssh, for hosts that cannot reach it directly."""

import re
import subprocess
import threading
from collections import deque
from typing import final

from flambeau.clusters.ssh.connection import SshProgram
from flambeau.clusters.ssh.problems import last_line
from flambeau.errors import ConfigError

OPEN_SECONDS = 30.0
LINES = 20
_PORT = re.compile(r"Allocated port (?P<port>\d+) for remote forward")
#: Exits, and so ends the connection, when its input ends: that is a pipe of the driver.
_COMMAND = "exec cat"


@final
class Tunnel:
    """A port on a host's loopback that leads to a port of the driver, while the tunnel is open.

    It has its own connection, since the driver's port is known only after the host is in use.
    """

    def __init__(self, ssh: SshProgram, host: str, target: str) -> None:
        """Open the tunnel to `target`, the driver's HOST:PORT."""
        self._ssh, self._host = ssh, host
        self._lines: deque[str] = deque(maxlen=LINES)
        self._said = threading.Event()
        self._port: str | None = None
        options = ["-R", f"127.0.0.1:0:{target}", "-o", "ExitOnForwardFailure=yes"]
        # A connection shared with other commands would stay open as long as the first of them.
        options += ["-o", "ControlPath=none", "-o", "LogLevel=INFO"]
        self._process = subprocess.Popen(
            ssh.command(host, _COMMAND, *options),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._read, name="flambeau-tunnel", daemon=True)
        self._thread.start()

    def address(self) -> str:
        """Wait for the tunnel to open; return its address on the host."""
        self._said.wait(OPEN_SECONDS)
        if self._port is None:
            self.close()
            raise ConfigError(
                f"{self._host} cannot reach this machine, and ssh opens no way back: "
                f"{last_line(''.join(self._lines)) or 'no answer'}. Its sshd must allow it "
                "(AllowTcpForwarding yes or remote), or this machine must have an address that "
                "hosts reach, given as host="
            )
        return f"tcp://127.0.0.1:{self._port}"

    @property
    def ended(self) -> bool:
        """Return whether the connection of the tunnel has ended."""
        return self._process.poll() is not None

    def close(self) -> None:
        """Close the tunnel."""
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                self._lines.append(line)
                found = _PORT.search(line)
                if found:
                    self._port = found["port"]
                    self._said.set()
        self._said.set()
