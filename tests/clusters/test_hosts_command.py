"""`flambeau hosts` on ssh servers of this machine."""

import json
import os
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import sshd
from typer.testing import CliRunner

from flambeau.cli.app import app

SECONDS = 60


@pytest.fixture(scope="module")
def lists(ssh_hosts: sshd.SshHosts, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Writes a file of hosts."""
    folder = tmp_path_factory.mktemp("lists")

    def write(*names: str) -> str:
        path = folder / f"{'-'.join(names)}.txt"
        path.write_text("".join(f"{name}\n" for name in names))
        return str(path)

    return write


@pytest.fixture(scope="module")
def three(lists: Callable[..., str]) -> str:
    return lists("node1", "node2", "node3")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with files of every kind, and some that stay here."""
    folder = tmp_path / "project"
    for name in ("src/net.py", "job.yaml", "runs/first/job.yaml", ".git/config", "a b.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "src/__pycache__").mkdir()
    (folder / "src/__pycache__/net.pyc").touch()
    (folder / "src/runs").mkdir()
    (folder / "start.sh").write_text("#!/bin/sh\n")
    (folder / "start.sh").chmod(0o755)
    (folder / "link").symlink_to("job.yaml")
    return folder


def names_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


COPIED = {"src", "src/net.py", "src/runs", "job.yaml", "a b.txt", "start.sh", "link"}


def flambeau(*words: str, code: int = 0) -> str:
    """Run `flambeau hosts`, and return all that it prints."""
    result = CliRunner().invoke(app, ["hosts", *words])
    assert result.exit_code == code, result.output
    return result.output


def started(*words: str, python: str = sys.executable) -> subprocess.Popen[str]:
    """`flambeau hosts` in a process of its own."""
    return subprocess.Popen(
        [python, "-m", "flambeau", "hosts", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(sshd.SOURCES)},
    )


# check


def test_check_shows_what_every_host_offers(ssh_hosts: sshd.SshHosts, three: str) -> None:
    lines = flambeau("check", three, "--ssh", ssh_hosts.ssh).splitlines()
    assert lines[0].split() == (
        ["host", "latency", "cores", "memory", "GPU", "Python", "torch", "Flambeau", "free", "disk"]
    )
    assert [line.split()[0] for line in lines[1:4]] == ["node1", "node2", "node3"]
    assert all(sys.version.split()[0] in line for line in lines[1:4])
    assert lines[4] == "3 hosts can take part in a job of this machine."


def test_check_of_hosts_with_faults_says_what_to_do(
    ssh_hosts: sshd.SshHosts, lists: Callable[..., str], tmp_path: Path
) -> None:
    old = tmp_path / "flambeau"
    old.mkdir()
    (old / "__init__.py").touch()
    (old / "version.py").write_text('__version__ = "0.0.1"\n')
    ssh_hosts.start("node4", {"PYTHONPATH": str(tmp_path)})
    ssh_hosts.start("node5", accepts_key=False)
    try:
        hosts = lists("node1", "node4", "node5", "node6")
        shown = flambeau("check", hosts, "--ssh", ssh_hosts.ssh, "--json", code=1)
    finally:
        ssh_hosts.kill("node4")
        ssh_hosts.kill("node5")
    good, other, refusing, off = json.loads(shown)
    assert good["problems"] == []
    assert good["reachable"]
    assert 0 < good["latency_ms"] < 60_000
    assert good["description"]["cores"] >= 1
    assert other["description"]["flambeau"] == "0.0.1"
    (fault,) = other["problems"]
    assert fault["text"].startswith("it has Flambeau 0.0.1, this driver ")
    assert "-m pip install flambeau==" in fault["command"]
    assert refusing["problems"][0]["kind"] == "denied"
    assert not off["reachable"]
    assert off["problems"][0]["kind"] == "refused"


def test_check_of_a_host_without_python_says_so(
    ssh_hosts: sshd.SshHosts, lists: Callable[..., str]
) -> None:
    words = ["check", lists("node1"), "--ssh", ssh_hosts.ssh, "--python", "/no/python3.11"]
    shown = flambeau(*words, code=1)
    assert "1 of 1 host cannot take part" in shown
    assert "node1: there is no Python: no program /no/python3.11" in shown


def test_what_a_login_prints_does_not_disturb(
    ssh_hosts: sshd.SshHosts, lists: Callable[..., str], tmp_path: Path
) -> None:
    shell = tmp_path / "rc"
    shell.write_text("echo Welcome to this host\n")
    ssh_hosts.start("node4", {"BASH_ENV": str(shell), "ENV": str(shell)})
    try:
        shown = flambeau("check", lists("node4"), "--ssh", ssh_hosts.ssh)
    finally:
        ssh_hosts.kill("node4")
    assert "1 host can take part" in shown


# sync


def test_sync_copies_the_project_and_nothing_else(
    ssh_hosts: sshd.SshHosts, lists: Callable[..., str], project: Path, tmp_path: Path
) -> None:
    target = tmp_path / "there/with spaces"
    target.mkdir(parents=True)
    (target / "own.txt").write_text("of the host")
    beside = tmp_path / "there/beside.txt"
    beside.write_text("untouched")
    words = ["sync", lists("node1"), str(project), "--to", str(target), "--no-venv"]
    words += ["--ssh", ssh_hosts.ssh]
    assert "would copy 4 of 4 files" in flambeau(*words, "--dry-run")
    assert names_below(target) == {"own.txt"}
    assert "copied 4 of 4 files" in flambeau(*words)
    assert names_below(target) == {*COPIED, "own.txt"}
    assert (target / "a b.txt").read_text() == "a b.txt"
    assert (target / "start.sh").stat().st_mode & 0o777 == 0o755
    assert (target / "link").readlink() == Path("job.yaml")
    assert beside.read_text() == "untouched"
    assert not list(project.glob(".flambeau-shared-*"))
    (project / "job.yaml").write_text("changed")
    assert "copied 1 of 4 files" in flambeau(*words)
    assert (target / "job.yaml").read_text() == "changed"
    (project / "src/net.py").write_text("changed, too")
    assert "would copy 1 of 4 files" in flambeau(*words, "--dry-run")
    assert (target / "src/net.py").read_text() == "src/net.py"


def without_rsync(folder: Path) -> str:
    """A PATH that leads to everything but rsync."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            if program.name != "rsync" and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return str(folder)


def test_sync_without_rsync_sends_an_archive(
    ssh_hosts: sshd.SshHosts, lists: Callable[..., str], project: Path, tmp_path: Path
) -> None:
    target = tmp_path / "there"
    words = ["sync", lists("node1"), str(project), "--to", str(target), "--no-venv"]
    words += ["--ssh", ssh_hosts.ssh, "--exclude", "*.sh", "--exclude", "/src"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", without_rsync(tmp_path / "bin"))
        shown = flambeau(*words)
    assert "copied 2 of 2 files" in shown
    assert "by tar" in shown
    assert names_below(target) == {"job.yaml", "a b.txt", "link"}
    assert (target / "link").readlink() == Path("job.yaml")


def test_a_shared_folder_is_not_copied(
    ssh_hosts: sshd.SshHosts, three: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    before = names_below(project)
    shown = flambeau("sync", three, "--ssh", ssh_hosts.ssh)
    assert shown.count(f"{project} is shared, nothing is copied") == 3
    assert names_below(project) == before


@pytest.fixture
def environment(project: Path) -> str:
    """The Python of a virtual environment in the project, which has Flambeau and all it needs."""
    venv.create(project / ".venv", with_pip=False, symlinks=True)
    python = project / ".venv/bin/python"
    (packages,) = (project / ".venv/lib").glob("python*/site-packages")
    others = [path for path in sys.path if path.endswith("-packages")]
    (packages / "others.pth").write_text("\n".join([str(sshd.SOURCES), *others]))
    return str(python)


@pytest.mark.parametrize("by", ["rsync", "tar"])
def test_sync_copies_the_environment_to_hosts_that_can_use_it(
    ssh_hosts: sshd.SshHosts,
    lists: Callable[..., str],
    project: Path,
    environment: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
) -> None:
    target = tmp_path / "there"
    words = ["sync", lists("node1"), str(project), "--to", str(target), "--ssh", ssh_hosts.ssh]
    if by == "tar":
        monkeypatch.setenv("PATH", without_rsync(tmp_path / "bin"))
    # An older copy is replaced as a whole: two versions of a package would be a mixture.
    (target / ".venv/lib").mkdir(parents=True)
    (target / ".venv/lib/old.py").touch()
    (target / ".venv/pyvenv.cfg").touch()
    process = started(*words, python=environment)
    shown, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, shown
    assert f"by {by}) to {target}/.venv; {target}/.venv/bin/python has what jobs need" in shown
    assert names_below(target / ".venv") == names_below(project / ".venv")
    assert not list(target.glob("*flambeau-new"))


def test_hosts_that_share_a_folder_get_one_copy(
    ssh_hosts: sshd.SshHosts, three: str, project: Path, tmp_path: Path
) -> None:
    target = tmp_path / "there"
    words = ["sync", three, str(project), "--to", str(target), "--no-venv"]
    shown = flambeau(*words, "--ssh", ssh_hosts.ssh)
    assert shown.count("copied 4 of 4 files") == 1
    assert shown.count(f"{target} is shared with node1") == 2
    assert names_below(target) == COPIED


def test_sync_replaces_no_folder_that_is_not_an_environment(
    ssh_hosts: sshd.SshHosts,
    lists: Callable[..., str],
    project: Path,
    environment: str,
    tmp_path: Path,
) -> None:
    target = tmp_path / "there"
    (target / ".venv").mkdir(parents=True)
    (target / ".venv/precious.txt").touch()
    words = ["sync", lists("node1"), str(project), "--to", str(target), "--ssh", ssh_hosts.ssh]
    process = started(*words, python=environment)
    shown, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 1, shown
    assert f"{target}/.venv is there, but is no virtual environment" in shown
    assert names_below(target / ".venv") == {"precious.txt"}


def test_sync_prints_the_pip_line_of_hosts_with_other_packages(
    ssh_hosts: sshd.SshHosts, lists: Callable[..., str], project: Path, tmp_path: Path
) -> None:
    ssh_hosts.start("node4", {"PYTHONPATH": ""})
    try:
        words = ["sync", lists("node4"), str(project), "--to", str(tmp_path / "there")]
        words += ["--no-venv", "--ssh", ssh_hosts.ssh, "--python", bare_python(tmp_path)]
        shown = flambeau(*words)
    finally:
        ssh_hosts.kill("node4")
    assert "To install what is needed, run:" in shown
    assert "node4" in shown.splitlines()[-1]
    assert "-m pip install flambeau==" in shown.splitlines()[-1]


def bare_python(folder: Path) -> str:
    """A Python without packages."""
    venv.create(folder / "bare", with_pip=False, symlinks=True)
    return str(folder / "bare/bin/python")


def test_sync_to_a_host_that_cannot_be_reached_says_so_and_serves_the_others(
    ssh_hosts: sshd.SshHosts, lists: Callable[..., str], project: Path, tmp_path: Path
) -> None:
    target = tmp_path / "there"
    words = ["sync", lists("node8", "node1"), str(project), "--to", str(target), "--no-venv"]
    shown = flambeau(*words, "--ssh", ssh_hosts.ssh, code=1)
    assert "node1: copied 4 of 4 files" in shown
    assert "1 of 2 hosts did not get all files" in shown
    assert "node8: it refuses connections" in shown
    assert names_below(target) == COPIED


# run


def test_run_shows_the_host_of_every_line(ssh_hosts: sshd.SshHosts, three: str) -> None:
    command = ["run", three, "--ssh", ssh_hosts.ssh, "--", "printf", "%s\n", "one $HOME", "two"]
    expected = [f"[node{n}] {text}" for n in (1, 2, 3) for text in ("one $HOME", "two")]
    assert sorted(flambeau(*command).splitlines()) == expected


def test_a_single_word_is_a_line_of_shell(
    ssh_hosts: sshd.SshHosts, lists: Callable[..., str]
) -> None:
    line = "x='a  b'; echo \"$x!\" | tr a c; echo bad >&2; printf 'no newline'"
    shown = flambeau("run", lists("node1"), "--ssh", ssh_hosts.ssh, "--", line)
    assert sorted(shown.splitlines()) == ["[node1] bad", "[node1] c  b!", "[node1] no newline"]


def test_run_here_is_in_the_same_folder(
    ssh_hosts: sshd.SshHosts,
    lists: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", lists("node1"), "--here", "--ssh", ssh_hosts.ssh, "--", "pwd"]
    assert flambeau(*words) == f"[node1] {tmp_path}\n"


def test_the_exit_code_of_run_is_that_of_the_first_failure(
    ssh_hosts: sshd.SshHosts, three: str
) -> None:
    line = 'case "$SSH_CONNECTION" in *" 127.0.0.3 "*) exit 7;; *) echo good;; esac'
    shown = flambeau("run", three, "--ssh", ssh_hosts.ssh, "--", line, code=7)
    assert shown.count("good") == 2
    assert "the command failed on 1 of 3 hosts:\n  node2: exit code 7" in shown


def test_run_explains_hosts_that_cannot_be_reached(
    ssh_hosts: sshd.SshHosts, lists: Callable[..., str]
) -> None:
    words = ["run", lists("node8", "node1"), "--ssh", ssh_hosts.ssh, "--", "echo", "good"]
    shown = flambeau(*words, code=255)
    assert "[node1] good" in shown
    assert "node8: it refuses connections" in shown


def sleeping(hosts: sshd.SshHosts, name: str) -> int:
    """How many processes of `sleep 1000` run on a host."""
    count = 0
    for process in hosts.processes(name):
        with suppress(psutil.NoSuchProcess):
            count += process.cmdline() == ["sleep", "1000"]
    return count


def await_sleeping(hosts: sshd.SshHosts, name: str, count: int) -> None:
    deadline = time.monotonic() + SECONDS
    while sleeping(hosts, name) != count:
        assert time.monotonic() < deadline, hosts.processes(name)
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (
            signal.SIGINT,
            "trap 'echo ended; kill -KILL $!; exit' TERM; (trap '' TERM; exec sleep 1000) & wait",
        ),
        (signal.SIGKILL, "trap '' TERM; sleep 1000; sleep 1000"),
    ],
    ids=["Ctrl-C", "killed"],
)
def test_the_commands_end_with_the_program_that_started_them(
    ssh_hosts: sshd.SshHosts, lists: Callable[..., str], number: int, line: str
) -> None:
    process = started("run", lists("node1", "node2"), "--ssh", ssh_hosts.ssh, "--", line)
    for name in ("node1", "node2"):
        await_sleeping(ssh_hosts, name, 1)
    process.send_signal(number)
    shown, _ = process.communicate(timeout=SECONDS)
    if number == signal.SIGINT:
        assert process.returncode == 130
        # What commands write at their end is shown, too.
        assert {"[node1] ended", "[node2] ended", "stopped"} <= set(shown.splitlines()), shown
    for name in ("node1", "node2"):
        await_sleeping(ssh_hosts, name, 0)
