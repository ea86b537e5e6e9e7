"""A real Slurm of three nodes on this machine, as long as tests need it."""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun")
START_SECONDS = 30.0

CONFIGURATION = """\
ClusterName=flambeau
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
NodeName=n[1-3] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=4
PartitionName=all Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def lacking() -> str | None:
    """What is missing for it here, and how to get it."""
    if any(shutil.which(program, path=_path()) is None for program in PROGRAMS):
        return "apt-get install slurmctld slurmd slurm-client munge"
    return None if os.getuid() == 0 else "run the tests as root, who may start a Slurm"


def _path() -> str:
    return os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])


@contextmanager
def running() -> Iterator[dict[str, str]]:
    """Start it; gives the environment that its commands need."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    started: list[subprocess.Popen[bytes]] = []
    try:
        folder.chmod(0o755)
        environment = {**os.environ, "PATH": _path(), "SLURM_CONF": str(folder / "slurm.conf")}
        _configure(folder)
        started.append(_start_munge(folder))
        _await(lambda: (folder / "munge" / "socket").exists())
        commands = [["slurmctld", "-D"], *(["slurmd", "-D", "-N", f"n{i}"] for i in (1, 2, 3))]
        for command in commands:
            with (folder / f"{'-'.join(command)}.out").open("wb") as out:
                started.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
        _await(lambda: _idle(environment) == 3)
        yield {name: environment[name] for name in ("PATH", "SLURM_CONF")}
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(folder)


def _configure(folder: Path) -> None:
    (folder / "state").mkdir()
    first = _free_ports(4)
    text = CONFIGURATION.format(
        host=socket.gethostname().split(".")[0],
        folder=folder,
        controller=first,
        first=first + 1,
        last=first + 3,
    )
    (folder / "slurm.conf").write_text(text, encoding="ascii")


def _start_munge(folder: Path) -> subprocess.Popen[bytes]:
    own = folder / "munge"
    own.mkdir(mode=0o755)
    (own / "key").write_bytes(secrets.token_bytes(1024))
    (own / "key").chmod(0o400)
    for path in (own, own / "key"):
        shutil.chown(path, "munge", "munge")
    files = [f"--{name}-file={own / name}" for name in ("key", "log", "pid", "seed")]
    command = ["munged", "--foreground", f"--socket={own / 'socket'}", *files]
    with (folder / "munged.out").open("wb") as out:
        return subprocess.Popen(
            command, env={"PATH": _path()}, user="munge", group="munge", stdout=out, stderr=out
        )


def _idle(environment: dict[str, str]) -> int:
    command = ["sinfo", "--noheader", "--Node", "--format=%T"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.split().count("idle")


def _await(happened: object) -> None:
    assert callable(happened)
    deadline = time.monotonic() + START_SECONDS
    while not happened():
        assert time.monotonic() < deadline, "Slurm does not start"
        time.sleep(0.1)


def _free_ports(count: int) -> int:
    """The first of some neighbouring ports that are free."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            first = int(probe.getsockname()[1])
        if first + count < 32768 or first + count < 60999:
            probes = []
            try:
                for port in range(first, first + count):
                    probes.append(socket.create_server(("127.0.0.1", port)))
                return first
            except OSError:
                continue
            finally:
                for each in probes:
                    each.close()
