"""Tests of this tier start real clusters; none of them may leave anything behind."""

import logging
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import ray_nodes
import sshd

from lacking import missing
from shared_memory import shared, still_shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Made by `make test`; see the Makefile.
SPARK_35 = Path(sys.prefix) / "spark-3.5"
#: Models, which data frames need as long as the driver lives, or the machine keeps for others, and
#: the sockets of fork servers, which wait for the next job.
KEPT = ("flambeau-spark-", "flambeau-models-", "flambeau-fork-server-")

SECONDS_TO_END = 10.0
#: For processes of Java that run for a minute: little is compiled, and not for long.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

QUIET = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@pytest.fixture(scope="session")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder for temporary files of this process and of all that it starts."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr("tempfile.tempdir", None)
        yield folder
        assert not _still_running(folder, but_fork_servers=False), "processes still run"


@pytest.fixture(scope="session")
def java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which(f"{home}/bin/java" if home else "java") is None:
        missing("no Java for Spark", "apt-get install openjdk-17-jre-headless")


@pytest.fixture(scope="session")
def spark_folder(
    java: None, temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Where all that Spark writes goes; this process and its children start Spark that way."""
    folder = tmp_path_factory.mktemp("spark")
    for name in ("conf", "home"):
        (folder / name).mkdir()
    # Executors of a local cluster work below Spark's home, which is the package otherwise.
    for entry in Path(find_spec("pyspark").origin).parent.iterdir():
        if entry.name != "work":
            (folder / "home" / entry.name).symlink_to(entry)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={temporary} {SHORT_LIVED}",
        "spark.executor.extraJavaOptions": f"-Djava.io.tmpdir={temporary} {SHORT_LIVED}",
        # Queries of tests are small: what compiling them gains is never gained back.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    lines = (f"{name} {value}\n" for name, value in settings.items())
    (folder / "conf" / "spark-defaults.conf").write_text("".join(lines))
    (folder / "conf" / "log4j2.properties").write_text(QUIET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(folder / "conf"))
        patch.setenv("SPARK_HOME", str(folder / "home"))
        patch.setenv("SPARK_LOCAL_DIRS", str(temporary))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        # Executors find the classes of tests where the tests do.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        yield folder


def _session(master: str) -> "Iterator[SparkSession]":
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master(master).getOrCreate()
    try:
        yield session
    finally:
        gateway = SparkContext._gateway
        session.stop()
        # The next module's session gets a Java of its own, with nothing in it of this one.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=60)
        SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="module")
def spark(spark_folder: Path) -> "Iterator[SparkSession]":
    """A session whose two slots are threads of one process."""
    yield from _session("local[2]")


@pytest.fixture(scope="module")
def local_cluster(spark_folder: Path) -> "Iterator[SparkSession]":
    """A session with two executor processes of one slot each."""
    yield from _session("local-cluster[2,1,1024]")


@pytest.fixture
def run_script(spark_folder: Path) -> Callable[..., str]:
    """Runs a script of tests/clusters/scripts, or one given by its whole path, in a process of its
    own, and gives what it prints.

    A process has either classic sessions or those of Spark Connect (`connect`), and one version
    of Spark: `first` are folders where modules are looked for before all others. `by` is what runs
    the script, if that is not Python itself.
    """

    def run(
        script: str | Path,
        *arguments: object,
        by: tuple[str, ...] = (),
        first: tuple[Path, ...] = (),
        connect: bool = False,
    ) -> str:
        path = Path(__file__).parent / "scripts" / script
        folders = [*map(str, first), os.environ["PYTHONPATH"]]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
        if connect:
            # With this, Spark Connect takes any free port instead of always the same.
            environment["SPARK_TESTING"] = "1"
        if first:
            del environment["SPARK_HOME"]
        done = subprocess.run(
            [sys.executable, *by, str(path), *map(str, arguments)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def spark_35(spark_folder: Path) -> Path:
    """The folder with pyspark 3.5, for `run_script(..., first=(spark_35,))`."""
    if not (SPARK_35 / "pyspark").is_dir():
        missing("no Spark 3.5", "make test installs it")
    return SPARK_35


@pytest.fixture(scope="session")
def two_rays(temporary: Path) -> Iterator[ray_nodes.Nodes]:
    """A real Ray of two nodes, with two cores each."""
    with ray_nodes.running() as nodes:
        yield nodes


@pytest.fixture(scope="module")
def joined(two_rays: ray_nodes.Nodes) -> Iterator[ray_nodes.Nodes]:
    """The same, of which this process is a program."""
    import ray.data
    from ray._private.authentication_test_utils import reset_auth_token_state

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own settings are deprecated
        ray.data.DataContext.get_current().enable_progress_bars = False
    with pytest.MonkeyPatch.context() as patch:
        for name, value in two_rays.environment.items():
            patch.setenv(name, value)
        reset_auth_token_state()  # which was read when Ray was imported
        ray.init(two_rays.address, logging_level=logging.ERROR, log_to_driver=False)
        yield two_rays
        ray.shutdown()
    reset_auth_token_state()


@pytest.fixture(scope="module")
def ssh_hosts(temporary: Path) -> Iterator[sshd.SshHosts]:
    """Three hosts, node1 to node3, for the tests of a file."""
    if (remedy := sshd.lacking()) is not None:
        missing("no ssh server", remedy)
    with sshd.running(3, temporary=temporary) as hosts:
        yield hosts


def _flambeau_processes(temporary: Path) -> dict[int, str]:
    """Live processes of ours that tests have started on executors."""
    found = {}
    for process in psutil.process_iter(["cmdline", "environ", "ppid", "status"]):
        command = process.info["cmdline"] or []
        is_flambeau = any(word.startswith("flambeau.") for word in command)
        ours = (process.info["environ"] or {}).get("TMPDIR") == str(temporary)
        ended = process.info["status"] == psutil.STATUS_ZOMBIE
        of_driver = process.info["ppid"] == os.getpid()
        if ours and is_flambeau and not ended and not of_driver:
            found[process.pid] = " ".join(command)
    return found


def _is_fork_server(pid: int) -> bool:
    """Whether it waits for the next job; what it forks has its name, but is in its session."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def _still_running(temporary: Path, *, but_fork_servers: bool) -> dict[int, str]:
    """What does not end by itself within a while."""
    deadline = time.monotonic() + SECONDS_TO_END
    while True:
        found = {
            pid: command
            for pid, command in _flambeau_processes(temporary).items()
            if not (but_fork_servers and _is_fork_server(pid))
        }
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)  # what Spark has killed takes its children along, a moment later


@pytest.fixture
def still_running(temporary: Path) -> Callable[[], dict[int, str]]:
    """Gives the processes of ours that do not end by themselves within a while."""
    return lambda: _still_running(temporary, but_fork_servers=False)


@pytest.fixture(autouse=True)
def nothing_left(temporary: Path) -> Iterator[None]:
    """No process, temporary file or shared memory of ours is left by a test.

    Spark's own processes live as long as its session; it keeps its files below names of its own.
    """
    before = shared()
    yield
    assert not _still_running(temporary, but_fork_servers=True), "processes still run"
    assert not still_shared(shared() - before)
    left = {entry.name for entry in temporary.glob("flambeau*")}
    assert not {name for name in left if not name.startswith(KEPT)}
