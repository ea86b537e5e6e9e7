"""The identity of a launcher's process: rank, size and job name, read from the environment."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flambeau.clusters.interfaces import local_address
from flambeau.config.clusters import Attached
from flambeau.errors import ConfigError

#: `off` disables the detection of launchers; the name of a launcher restricts it to that one.
ATTACH = "FLAMBEAU_ATTACH"
#: Names the job if the launcher sets no name that all of its processes share.
JOB_ID = "FLAMBEAU_JOB_ID"
#: For launchers that do not set the number of processes (aprun).
RANKS_PER_NODE = "FLAMBEAU_RANKS_PER_NODE"
LOOPBACK = "127.0.0.1"
#: An address that is never reached: the local address of the route there is the one to announce.
_ELSEWHERE = "192.0.2.1"


@dataclass(frozen=True)
class Launcher:
    """The variables of one launcher. Those in `job` differ between two of its jobs."""

    name: str
    command: str
    rank: tuple[str, ...]
    size: tuple[str, ...]
    local_size: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    #: Further variables that must be set, to distinguish it from other launchers.
    marks: tuple[str, ...] = ()

    def found(self, environment: Mapping[str, str]) -> bool:
        """Return whether this launcher started the process with this environment."""
        known = any(name in environment for name in self.rank)
        return known and all(name in environment for name in self.marks)


#: In the order of detection: a launcher comes before those that it is built on.
LAUNCHERS = (
    Launcher(
        "torchrun",
        "torchrun --nproc-per-node 4",
        ("RANK",),
        ("WORLD_SIZE",),
        ("LOCAL_WORLD_SIZE",),
        ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"),
        marks=("WORLD_SIZE", "LOCAL_RANK"),
    ),
    Launcher(
        "horovod",
        "horovodrun -np 4",
        ("HOROVOD_RANK",),
        ("HOROVOD_SIZE",),
        ("HOROVOD_LOCAL_SIZE",),
        ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
    ),
    Launcher(
        "openmpi",
        "mpirun -n 4",
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    Launcher(
        "mvapich",
        "mpirun_rsh -np 4",
        ("MV2_COMM_WORLD_RANK",),
        ("MV2_COMM_WORLD_SIZE",),
        ("MV2_COMM_WORLD_LOCAL_SIZE",),
        ("MPIRUN_ID",),
    ),
    Launcher(
        "pals",
        "mpiexec -n 4",
        ("PALS_RANKID",),
        ("PMI_SIZE", "PALS_SIZE"),
        ("PALS_LOCAL_SIZE",),
        ("PALS_APID",),
    ),
    Launcher(
        "jsrun",
        "jsrun -n 4",
        ("JSM_NAMESPACE_RANK",),
        ("JSM_NAMESPACE_SIZE",),
        ("JSM_NAMESPACE_LOCAL_SIZE",),
        ("LSF_PM_TASKID",),
    ),
    Launcher(
        "flux",
        "flux run -n 4",
        ("FLUX_TASK_RANK",),
        ("FLUX_JOB_SIZE",),
        job=("FLUX_JOB_ID",),
    ),
    Launcher(
        "aprun",
        "aprun -n 4",
        ("ALPS_APP_PE",),
        (),
        job=("ALPS_APP_ID",),
    ),
    Launcher(
        "mpich",
        "mpiexec -n 4",
        ("PMI_RANK",),
        ("PMI_SIZE",),
        ("MPI_LOCALNRANKS",),
        marks=("PMI_SIZE",),
    ),
    Launcher(
        "slurm",
        "srun -n 4",
        ("SLURM_PROCID",),
        ("SLURM_STEP_NUM_TASKS",),
        job=("SLURM_STEP_ID",),
        # SLURM_PROCID is also set in batch scripts.
        marks=("SLURM_STEP_NUM_TASKS",),
    ),
)

#: Variables with the name of an allocation, and with its number of restarts.
_SCHEDULERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "COBALT_JOBID", "FLUX_JOB_ID")
_RESTARTS = ("SLURM_RESTART_COUNT",)


@dataclass(frozen=True)
class Identity:
    """The identity of one of the processes that a launcher started.

    `job` identifies this start of the job: it is equal in all of its processes, and in no others.
    """

    launcher: str
    rank: int
    size: int
    job: str
    one_host: bool = False


def identity_of(settings: Attached, environment: Mapping[str, str] | None = None) -> Identity:
    """Return the identity of this process; raise `ConfigError` if a variable is missing."""
    environment = os.environ if environment is None else environment
    if settings.rank is not None and settings.size is not None:
        return _checked(Identity("rank=", settings.rank, settings.size, _job(None, environment)))
    if settings.detect is None and environment.get(ATTACH) == "off":
        return Identity("none", 0, 1, _job(None, environment), one_host=True)
    found = _detect(settings.detect or environment.get(ATTACH), environment)
    if found is None:
        raise ConfigError(_nothing_found(settings.detect or environment.get(ATTACH)))
    return found


def detected(environment: Mapping[str, str] | None = None) -> Identity | None:
    """Return the identity of this process among several of a launcher; None if it is alone."""
    environment = os.environ if environment is None else environment
    if environment.get(ATTACH) == "off":
        return None
    found = _detect(environment.get(ATTACH), environment)
    return found if found is not None and found.size > 1 else None


def _detect(name: str | None, environment: Mapping[str, str]) -> Identity | None:
    known = [each.name for each in LAUNCHERS]
    if name is not None and name not in known:
        raise ConfigError(f"{ATTACH}={name}: give 'off', or one of {', '.join(known)}")
    for launcher in LAUNCHERS:
        if name in (None, launcher.name) and launcher.found(environment):
            return _identity(launcher, environment)
    return None


def _nothing_found(name: str | None) -> str:
    if name is not None:
        (launcher,) = (each for each in LAUNCHERS if each.name == name)
        needed = (*launcher.rank[:1], *launcher.size[:1], *launcher.marks)
        variables = ", ".join(dict.fromkeys(needed))
        return (
            f"detect='{name}': its variables ({variables}) are not set in this process; start it "
            f"with '{launcher.command}'"
        )
    return (
        "cluster=fb.Attached(): no launcher has started this process. Start it with one, such as "
        "'srun -n 4 python script.py', 'mpirun -n 4 python script.py' or "
        f"'torchrun --nproc-per-node 4 script.py', give rank= and size=, or set {ATTACH}=off to "
        "run it alone"
    )


def _identity(launcher: Launcher, environment: Mapping[str, str]) -> Identity:
    rank = _number(launcher.rank, environment)
    size = _number(launcher.size, environment)
    if size is None and launcher.name == "aprun":
        nodes = _number(("COBALT_JOBSIZE",), environment)
        each = _number((RANKS_PER_NODE,), environment)
        size = None if nodes is None or each is None else nodes * each
    if rank is None or size is None:
        raise ConfigError(
            f"{launcher.name} has started this process, but does not say how many there are: give "
            f"fb.Attached(rank=..., size=...), or set {RANKS_PER_NODE}"
            if launcher.name == "aprun"
            else f"{launcher.name} has set {launcher.rank[0]}, but none of "
            f"{', '.join(launcher.size)}: give fb.Attached(rank=..., size=...)"
        )
    here = _number(launcher.local_size, environment)
    one_host = here == size or (launcher.name == "slurm" and _nodes(environment) == 1)
    job = _job(launcher, environment)
    if one_host and not any(name in environment for name in (*launcher.job, JOB_ID)):
        job = f"{job}-{os.getppid()}"  # all processes have the same parent
    return _checked(Identity(launcher.name, rank, size, job, one_host))


def _checked(identity: Identity) -> Identity:
    if not 0 <= identity.rank < identity.size:
        raise ConfigError(
            f"rank {identity.rank} of {identity.size} ({identity.launcher}): ranks begin with 0 "
            "and end before the size"
        )
    return identity


def _number(names: tuple[str, ...], environment: Mapping[str, str]) -> int | None:
    for name in names:
        if name in environment:
            try:
                return int(environment[name])
            except ValueError:
                raise ConfigError(f"{name}={environment[name]!r} is not a number") from None
    return None


def _nodes(environment: Mapping[str, str]) -> int | None:
    return _number(("SLURM_STEP_NUM_NODES",), environment)


def _job(launcher: Launcher | None, environment: Mapping[str, str]) -> str:
    own = () if launcher is None else launcher.job
    names = (JOB_ID, *own, *_SCHEDULERS, *_RESTARTS)
    values = [environment[name] for name in dict.fromkeys(names) if environment.get(name)]
    text = "-".join(["job" if launcher is None else launcher.name, *values])
    return re.sub(r"[^A-Za-z0-9.]+", "-", text)


def own_address(settings: Attached, identity: Identity) -> str:
    """Return the address at which the other processes of the job reach this machine."""
    given = settings.host or os.environ.get("MASTER_ADDR")
    if given is not None:
        return _resolved(given) or given
    if identity.one_host or identity.size == 1:
        return LOOPBACK
    found = _slurm_address(os.environ.get("SLURMD_NODENAME"))
    if found is not None:
        return found
    own = _resolved(socket.gethostname())
    if own is not None and not own.startswith("127."):
        return own
    try:
        return local_address(_ELSEWHERE)
    except OSError:
        return own or LOOPBACK


def _resolved(host: str) -> str | None:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return None


def _slurm_address(node: str | None) -> str | None:
    """Return the address of this node, from its name or from Slurm; None if not known."""
    if node is None:
        return None
    named = _resolved(node)
    if named is not None or shutil.which("scontrol") is None:
        return named
    command = ["scontrol", "show", "node", node]
    shown: Any = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    found = re.search(r"\bNodeAddr=(\S+)", shown.stdout)
    return None if found is None else _resolved(found[1])
