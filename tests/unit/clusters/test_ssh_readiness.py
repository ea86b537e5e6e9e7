"""What keeps a host from taking part in a job of this machine."""

import ast
import platform
import sys
from importlib import metadata
from pathlib import Path

import msgspec

from flambeau.clusters.ssh import probe_script
from flambeau.clusters.ssh.environment import Environment, misfit
from flambeau.clusters.ssh.probe import Description, Question, describe_here
from flambeau.clusters.ssh.readiness import faults
from flambeau.version import __version__

HERE = describe_here(Question("/", base=sys.executable))
GIB = 1 << 30


def like_here(**changes: object) -> Description:
    enough = {"free": 100 * GIB, "memory_free": 8 * GIB}
    return msgspec.structs.replace(HERE, **{**enough, **changes})


def texts(found: Description, python: str | None = None) -> list[str]:
    return [str(problem) for problem in faults(found, "node1", "ssh", python)]


def test_this_machine_describes_itself() -> None:
    assert HERE.python == platform.python_version()
    assert HERE.flambeau == __version__
    assert HERE.torch == metadata.version("torch")
    assert HERE.base == HERE.python
    assert HERE.cores >= 1
    assert HERE.free > 0
    assert (HERE.place, HERE.there) == ("/", True)


def test_the_probe_needs_no_more_than_python_3_6() -> None:
    source = Path(probe_script.__file__).read_text(encoding="ascii")
    ast.parse(source, feature_version=(3, 6))


def test_a_folder_that_is_not_there_is_described_by_the_nearest_one(tmp_path: Path) -> None:
    found = describe_here(Question(str(tmp_path / "a/b"), (str(tmp_path), str(tmp_path / "c"))))
    assert (found.place, found.there) == (str(tmp_path), False)
    assert found.marked == (True, False)


def test_a_host_like_this_machine_has_no_faults() -> None:
    assert texts(like_here()) == []
    assert HERE.torch is not None
    assert texts(like_here(torch=f"{HERE.torch.partition('+')[0]}+cu128")) == []


def test_an_old_python_is_a_fault() -> None:
    (text,) = texts(like_here(python="3.6.9", flambeau=None, torch=None))
    assert "is Python 3.6.9; Flambeau needs 3.11 or newer. Run: ssh -t node1 sudo apt-get" in text


def test_missing_and_other_packages_are_faults() -> None:
    (missing,) = texts(like_here(flambeau=None))
    assert f"lacks Flambeau. Run: ssh node1 '{sys.executable} -m pip install flambeau==" in missing
    (other,) = texts(like_here(torch="1.13.0"))
    assert "it has torch 1.13.0, this driver torch" in other


def test_another_python_than_jobs_use_by_default_is_a_fault_unless_it_was_named() -> None:
    found = like_here(executable="/opt/python")
    (text,) = texts(found)
    assert f"there is no Python at {sys.executable}, but one at /opt/python" in text
    assert texts(found, "/opt/python") == []


def test_little_memory_and_disk_space_are_faults() -> None:
    memory, disk = texts(like_here(memory_free=GIB // 2, free=GIB // 4))
    assert "only 0.5 GB of memory is free" in memory
    assert "only 0.2 GB is free on the disk of /. Run: ssh node1 df -h /" in disk


def test_environments_fit_machines_of_the_same_kind_with_the_same_python() -> None:
    environment = Environment(Path("/project/.venv"), "/usr/bin/python3.11")
    here = msgspec.structs.replace(
        HERE, system="Linux", machine="x86_64", libc="glibc 2.36", base="3.11.7"
    )

    def reason(**changes: object) -> str | None:
        return misfit(environment, msgspec.structs.replace(here, **changes), here)

    assert reason() is None
    assert reason(libc="glibc 2.40") is None
    assert reason(machine="aarch64") == "it is Linux aarch64, and here it is Linux x86_64"
    assert reason(libc="glibc 2.9") == "its glibc 2.9 is older than glibc 2.36, which is here"
    assert reason(base=None) == "it has no Python at /usr/bin/python3.11"
    assert reason(base="3.12.1") == "its Python is 3.12.1, and here it is 3.11.7"
    assert reason(base="3.11.2") is None
