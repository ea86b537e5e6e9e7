"""The clusters of the suite."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_cluster
import sshd
from places import Place
from ray_nodes import Nodes
from sshd import SshHosts

from lacking import missing

#: Made by `make test`; see the Makefile.
OPEN_MPI = Path(sys.prefix) / "openmpi" / "bin" / "mpirun"
MPICH = Path(sys.prefix) / "mpich" / "bin" / "mpiexec"


@pytest.fixture(params=["local", "spark", "ray", "ssh", "openmpi"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def local() -> Place:
    return Place("Local", "local")


@pytest.fixture
def spark(spark_folder: Path) -> Place:
    return Place("Spark", "spark", has_frames=True)


@pytest.fixture
def ray(two_rays: Nodes) -> Place:
    return Place("Ray", "ray", environment=two_rays.environment, has_frames=True)


@pytest.fixture(scope="module")
def quick_hosts(temporary: Path) -> Iterator[SshHosts]:
    """Three hosts on which torch stays loaded between jobs."""
    if (remedy := sshd.lacking()) is not None:
        missing("no ssh server", remedy)
    with sshd.running(3, {"FLAMBEAU_KEEP_LOADED": "60"}, temporary=temporary) as hosts:
        yield hosts


@pytest.fixture
def ssh(quick_hosts: SshHosts, tmp_path_factory: pytest.TempPathFactory) -> Place:
    path = quick_hosts.add_program(tmp_path_factory.mktemp("bin"))
    hosts = "".join(f"{name}\n" for name in quick_hosts.names)
    return Place("Ssh", "ssh", environment={"PATH": path}, files={"hosts.txt": hosts})


@pytest.fixture
def torchrun() -> Place:
    # Its own Python comes before a program of Python's.
    command = [sys.executable, "-m", "torch.distributed.run", "--no-python"]
    return Place("torchrun", "any", [*command, "--nproc-per-node", "{n}"])


@pytest.fixture
def mpich() -> Place:
    if not MPICH.exists():
        missing("no MPICH", "make test installs it")
    return Place("MPICH", "any", [str(MPICH), "-n", "{n}"])


@pytest.fixture(scope="session")
def slurm_environment() -> Iterator[dict[str, str]]:
    if (remedy := slurm_cluster.lacking()) is not None:
        missing("no Slurm", remedy)
    with slurm_cluster.running() as environment:
        yield environment


@pytest.fixture
def slurm(slurm_environment: dict[str, str]) -> Place:
    command = ["srun", "--quiet", "--nodes", "3", "--ntasks", "{n}", "--export", "ALL"]
    return Place("Slurm", "any", command, slurm_environment)


@pytest.fixture
def openmpi() -> Place:
    if not OPEN_MPI.exists():
        missing("no Open MPI", "make test installs it")
    options = ["--allow-run-as-root", "--oversubscribe", "-n", "{n}"]
    return Place("Attached", "attached", [str(OPEN_MPI), *options])
