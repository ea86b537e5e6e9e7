"""Private ssh servers, each a host of its own at a loopback address, as long as tests need them."""

import getpass
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

START_SECONDS = 30.0
SOURCES = Path(__file__).parents[2] / "src"

SERVER = """\
ListenAddress {address}
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/{authorized}
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication {passwords}
KbdInteractiveAuthentication no
MaxStartups 100
SetEnv {environment}
Subsystem sftp internal-sftp
"""
CLIENT = """\
Host {name}
    HostName {address}
"""
CLIENT_END = """\
Host *
    Port {port}
    User {user}
    IdentityFile {folder}/user_key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
"""


def lacking() -> str | None:
    """What is missing for them here, and how to get it."""
    programs = ("sshd", "ssh", "ssh-keygen")
    if any(shutil.which(program, path=_path()) is None for program in programs):
        return "apt-get install openssh-server"
    return None


def _path() -> str:
    return os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])


@dataclass
class SshHosts:
    """Hosts `node1`, `node2` and so on, at 127.0.0.2, 127.0.0.3 and so on."""

    folder: Path
    port: int
    environment: Mapping[str, str]
    servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The aliases of all hosts that are up."""
        return list(self.servers)

    @property
    def ssh(self) -> str:
        """The ssh program, with the configuration that knows these hosts."""
        return shlex.join(["ssh", "-F", str(self.folder / "config")])

    def add_program(self, folder: Path) -> str:
        """Put a program `ssh` that knows these hosts into a folder; return a PATH that finds it."""
        program = folder / "ssh"
        program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {self.ssh[3:]} "$@"\n')
        program.chmod(0o755)
        return os.pathsep.join([str(folder), os.environ["PATH"]])

    def address(self, name: str) -> str:
        """The address of a host."""
        return f"127.0.0.{int(name.removeprefix('node')) + 1}"

    def start(
        self,
        name: str,
        environment: Mapping[str, str] | None = None,
        *,
        accepts_key: bool = True,
        passwords: bool = False,
        lines: Sequence[str] = (),
    ) -> None:
        """Start a host; commands there have an `environment`. `lines` are added to sshd_config."""
        variables = {**self.environment, **(environment or {})}
        text = SERVER.format(
            address=self.address(name),
            port=self.port,
            folder=self.folder,
            authorized="user_key.pub" if accepts_key else "host_key.pub",
            passwords="yes" if passwords else "no",
            environment=" ".join(f'"{key}={value}"' for key, value in variables.items()),
        )
        path = self.folder / f"{name}.sshd_config"
        path.write_text("\n".join([text, *lines, ""]))
        sshd = shutil.which("sshd", path=_path())
        assert sshd is not None
        with (self.folder / f"{name}.log").open("wb") as log:
            self.servers[name] = subprocess.Popen(
                [sshd, "-D", "-e", "-f", str(path)], stdin=subprocess.DEVNULL, stderr=log
            )
        self._await(name)

    def _await(self, name: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            log = (self.folder / f"{name}.log").read_text()
            assert self.servers[name].poll() is None, log
            with suppress(OSError), socket.create_connection((self.address(name), self.port), 1):
                return
            assert time.monotonic() < deadline, log
            time.sleep(0.05)

    def processes(self, name: str) -> list[psutil.Process]:
        """All processes of a host that commands over ssh have started there, and their children."""
        found = []
        for process in psutil.process_iter(["environ", "status"]):
            connection = (process.info["environ"] or {}).get("SSH_CONNECTION", "").split()
            here = connection[2:] == [self.address(name), str(self.port)]
            if here and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        return found

    def clients(self) -> list[psutil.Process]:
        """All ssh programs of this machine that are connected to these hosts."""
        config = str(self.folder / "config")
        listed = psutil.process_iter(["cmdline"])
        return [process for process in listed if config in (process.info["cmdline"] or [])]

    def kill(self, name: str) -> None:
        """Cut a host's power: end its ssh server with all connections, and all it has started."""
        server = psutil.Process(self.servers[name].pid)
        for process in [server, *server.children(recursive=True), *self.processes(name)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.servers.pop(name).wait()

    def freeze(self, name: str) -> None:
        """Have a host fall silent, as if the network to it were cut; `kill` ends it."""
        server = psutil.Process(self.servers[name].pid)
        for process in [server, *server.children(recursive=True), *self.processes(name)]:
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def stop(self) -> None:
        """End all hosts; what still runs there is killed."""
        for name in list(self.servers):
            self.kill(name)

    def run(self, name: str, command: str) -> str:
        """Run a command on a host, and return what it prints."""
        words = [*shlex.split(self.ssh), name, command]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@contextmanager
def running(
    hosts: int = 3, environment: Mapping[str, str] | None = None, *, temporary: Path | None = None
) -> Iterator[SshHosts]:
    """Start so many hosts.

    Commands there find this Flambeau, and their temporary folder is `temporary`.
    """
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # a service of the system would make it
    folder = Path(tempfile.mkdtemp(prefix="sshd-", dir="/tmp"))
    variables = {"PYTHONPATH": str(SOURCES), **(environment or {})}
    if temporary is not None:
        variables["TMPDIR"] = str(temporary)
    with socket.create_server(("127.0.0.2", 0)) as probe:
        port = int(probe.getsockname()[1])
    found = SshHosts(folder, port, variables)
    try:
        _make_keys(found, hosts)
        for number in range(hosts):
            found.start(f"node{number + 1}")
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder)


def _make_keys(hosts: SshHosts, count: int) -> None:
    """Make keys, and files of the client; it knows more hosts than are up, for tests to start."""
    for name in ("host_key", "user_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]
        subprocess.run([*command, str(hosts.folder / name)], check=True)
    key = (hosts.folder / "host_key.pub").read_text().strip()
    names = [f"node{number + 1}" for number in range(count + 5)]
    known = [f"[{hosts.address(name)}]:{hosts.port} {key}\n" for name in names]
    (hosts.folder / "known_hosts").write_text("".join(known))
    aliases = [CLIENT.format(name=name, address=hosts.address(name)) for name in names]
    end = CLIENT_END.format(port=hosts.port, user=getpass.getuser(), folder=hosts.folder)
    (hosts.folder / "config").write_text("".join([*aliases, end]))
