"""Agents in the tasks of one barrier stage of Spark."""

import os
import re
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, Literal, final

import msgspec
import pyarrow as pa
from pyspark.sql import functions

from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.clusters.interfaces import local_address
from flambeau.clusters.local import LOOPBACK
from flambeau.clusters.spark.columns import for_arrow
from flambeau.clusters.spark.task import MARKER, Order
from flambeau.config import Spark
from flambeau.config.plural import number_of
from flambeau.errors import ConfigError, DataError, MissingDependencyError, UserError
from flambeau.kernels.cores import usable_cores
from flambeau.version import __version__

#: A function that Spark calls with the record batches of a partition.
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: Marks a task's message to the user among Spark's stack traces.
MARK = "Flambeau cannot run here: "
#: How to correct an environment.
ADVICE = (
    "install the same versions there, or ship this environment (guide: Spark, 'Shipping the "
    "environment')"
)
STOP_SECONDS = 60.0
#: The schema of the row that tasks return.
_ANSWER = "agent int, spooled_bytes bigint"
_LOCAL = re.compile(r"local(?:\[(?P<cores>\*|\d+)(?:,\s*\d+)?\])?$")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(?P<executors>\d+)\s*,\s*(?P<cores>\d+)\s*,.*\]$")
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[^'\n]+)'")
_FAILED_TASK = re.compile(r"barrier task \w+\(\d+, (?P<partition>\d+)\)")
_LOST_EXECUTOR = re.compile(r"ExecutorLostFailure \(executor (?P<executor>\S+) ")
_CAUSES = (
    re.compile(re.escape(MARK) + r"(?P<text>[^\n]*)"),
    re.compile(r"(?P<text>ExecutorLostFailure \([^)]*\)[^\n]*)"),
    re.compile(r"(?P<text>Python worker exited unexpectedly[^\n]*)"),
    re.compile(r"^(?P<text>(?!org\.|java\.|py4j)[\w.]+Error: [^\n]*)", re.MULTILINE),
)


@final
class SparkCluster(Cluster):
    """One agent in each task of a barrier stage; the tasks receive the rows of `frames`."""

    place_name = "executor"

    def __init__(self, settings: Spark, frames: Mapping[str, Any]) -> None:
        self._settings = settings
        self._session = session_of(settings)
        use_own_python(self._session)
        self._frames = dict(frames)
        self.agents = settings.workers
        self.brings_rows = bool(frames)
        self.patience = settings.start_timeout
        self.coordinator_host = driver_host(settings)
        self._launch: Launch | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._tag = ""
        self._stopping = False

    def start(self, launch: Launch) -> None:
        """Submit the stage."""
        require_slots(self._session, self.agents)
        self._launch, self._error = launch, None
        self._tag = f"flambeau-{uuid.uuid4().hex[:12]}"
        self._thread = threading.Thread(
            target=self._run, args=(launch, self._tag), name="flambeau-spark", daemon=True
        )
        self._thread.start()

    def poll(self) -> list[AgentEnded]:
        """Return why the stage ended, and which task and executor Spark names for it."""
        error, self._error = self._error, None
        if error is None or self._stopping:
            return []
        if isinstance(error, UserError):
            raise error
        raise_mistake(error)
        return [loss_of(error)]

    def restart(self, agents: Sequence[int]) -> None:
        """Submit the stage again: Spark ends all tasks of a barrier stage together."""
        assert self._launch is not None
        if not self.ended:
            self.cancel()
        self.start(self._launch)

    @property
    def ended(self) -> bool:
        """Whether no stage is running."""
        return self._thread is None or not self._thread.is_alive()

    def late(self, missing: Sequence[int]) -> UserError:
        """See `Cluster`; the stage starts only when all tasks can run at the same time."""
        return ConfigError(
            f"no message from {self.agents} tasks within {self.patience:.0f} s. If Spark has not "
            "started them: a barrier stage needs all at once, so give it more executors or cores "
            "(each task takes spark.task.cpus), end other jobs of the session, ask for fewer "
            "workers, or wait longer with Spark(start_timeout=...). If they run: executors cannot "
            f"reach this process at {self.coordinator_host}; give Spark(host=...)"
        )

    def stop(self) -> None:
        """Wait for the tasks, after `Shutdown` was sent to them; cancel those that do not end."""
        self._stopping = True
        if self._thread is None:
            return
        self._thread.join(timeout=STOP_SECONDS)
        if self._thread.is_alive():
            self.cancel()
            self._thread.join(timeout=STOP_SECONDS)

    def cancel(self) -> None:
        """End the stage at once."""
        if is_connect(self._session):
            self._session.interruptTag(self._tag)
        else:
            self._session.sparkContext.cancelJobsWithTag(self._tag)

    def _run(self, launch: Launch, tag: str) -> None:
        try:
            self._mark_job(tag)
            order = msgspec.msgpack.encode(
                Order(launch, tuple(self._frames), self._settings.spool_dir)
            )
            # Unsuitable executors fail before the rows are sent; the others load libraries.
            empty = self._session.range(0, self.agents, 1, self.agents)
            empty.mapInArrow(make_task(order, versions(), "get_ready"), _ANSWER).collect()
            task = make_task(order, versions(), "serve")
            answers = self._rows().mapInArrow(task, _ANSWER, **self._options()).collect()
            if len(answers) < self.agents:  # Spark starts no tasks for a frame it knows is empty
                raise DataError("the data frame has no rows")
        except Exception as error:  # noqa: BLE001 - handed to the driver by poll()
            if tag == self._tag:
                self._error = error

    def _rows(self) -> Any:
        """Return the input of the tasks: a placeholder, or the rows of all frames."""
        count = self.agents
        if not self._frames:
            return self._session.range(0, count, 1, count)
        frames = list(self._frames.values())
        if len(frames) > 1:
            frames = [
                frame.withColumn(MARKER, functions.lit(number).cast("int"))
                for number, frame in enumerate(frames)
            ]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame, allowMissingColumns=True)
        columns = [for_arrow(field.name, field.dataType) for field in whole.schema]
        return whole.repartition(count).select(*columns)

    def _options(self) -> dict[str, Any]:
        profile = self._settings.resource_profile
        return {"barrier": True} if profile is None else {"barrier": True, "profile": profile}

    def _mark_job(self, tag: str) -> None:
        """Tag the jobs of this thread, so that they alone can be cancelled."""
        if is_connect(self._session):
            self._session.addTag(tag)
            return
        # Not addTag: in a classic session it makes Spark's own models unserialisable (Spark 4).
        context = self._session.sparkContext
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)


def make_task(order: bytes, wanted: Mapping[str, str], work: Literal["get_ready", "serve"]) -> Task:
    """Return the function that each task of the barrier stage runs."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from flambeau.clusters.spark import task as spark_task

        context = TaskContext.get()
        assert context is not None
        found: Iterator[pa.RecordBatch] = getattr(spark_task, work)(
            order, context.partitionId(), batches
        )
        return found

    return checked_task(run, wanted)


def checked_task(run: Task, wanted: Mapping[str, str]) -> Task:
    """Return a task that runs a function where the wanted versions are installed.

    It is pickled by value, as `run` must be: an executor may lack Flambeau, and must report it.
    """
    mark, advice = MARK, ADVICE

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from importlib import metadata

        for name, version in wanted.items():
            try:
                found = metadata.version(name).partition("+")[0]
            except metadata.PackageNotFoundError:
                raise RuntimeError(
                    f"{mark}{name} is not installed on an executor; {advice}"
                ) from None
            if found != version:
                raise RuntimeError(
                    f"{mark}an executor has {name} {found}, this driver {version}; {advice}"
                )
        from flambeau.errors import UserError

        try:
            yield from run(batches)
        except UserError as error:
            raise RuntimeError(f"{mark}{error}") from error

    return task


def versions() -> dict[str, str]:
    """Return the packages that executors need, with their versions."""
    return {"flambeau": __version__, "torch": metadata.version("torch").partition("+")[0]}


def session_of(settings: Spark) -> Any:
    """Return the given session; if there is none, the active one or a new one."""
    if settings.session is not None:
        return settings.session
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def driver_host(settings: Spark) -> str:
    """Return the address of this machine that executors can reach."""
    if settings.host is not None:
        return settings.host
    session = session_of(settings)
    master = setting(session, "spark.master", "")
    if master.startswith("local"):
        return LOOPBACK
    remote = getattr(getattr(session, "client", None), "host", None)
    if remote is not None:
        return local_address(remote)
    return setting(session, "spark.driver.host", LOOPBACK)


def require_slots(session: Any, tasks: int) -> None:
    """Raise for a lack of task slots, which Spark would report after minutes, if at all."""
    if setting(session, "spark.dynamicAllocation.enabled", "false") == "true":
        raise ConfigError(
            "spark.dynamicAllocation.enabled=true: a barrier stage needs a fixed number of "
            "executors; set it to false and spark.executor.instances to how many you want"
        )
    slots = slots_of(
        setting(session, "spark.master", ""), int(setting(session, "spark.task.cpus", "1"))
    )
    if slots is not None and tasks > slots:
        raise ConfigError(
            f"cluster=Spark({tasks}): this session runs {number_of(slots, 'task')} at a time, and "
            f"a barrier stage needs all at once: ask for {number_of(slots, 'worker')}, or give "
            f"the session more cores (now spark.master is {setting(session, 'spark.master', '')})"
        )


def slots_of(master: str, task_cpus: int) -> int | None:
    """Return how many tasks a local master runs at a time; None: only the cluster knows."""
    found = _LOCAL.match(master)
    if found:
        cores = found["cores"] or "1"
        return (len(usable_cores()) if cores == "*" else int(cores)) // task_cpus
    found = _LOCAL_CLUSTER.match(master)
    if found:
        return int(found["executors"]) * (int(found["cores"]) // task_cpus)
    return None


def use_own_python(session: Any) -> None:
    """Let Python workers on this machine run this Python, if no other one is configured.

    Spark would use the `python3` that it finds, which is not that of a virtual environment that is
    not activated. A Spark Connect server chooses its own.
    """
    if is_connect(session) or not setting(session, "spark.master", "").startswith("local"):
        return
    given = os.environ.get("PYSPARK_PYTHON") or setting(session, "spark.pyspark.python", "")
    if not given:
        session.sparkContext.pythonExec = sys.executable


def is_connect(session: Any) -> bool:
    """Return whether this is a session of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def setting(session: Any, name: str, default: str) -> str:
    """Return a setting of a session of any kind."""
    return str(session.conf.get(name, default))


def raise_mistake(error: BaseException) -> None:
    """Raise a user error, if one ended the stage."""
    text = str(error)
    found = _CAUSES[0].search(text)
    if found:
        kind = MissingDependencyError if "not installed" in found["text"] else ConfigError
        raise kind(found["text"].strip())
    found = _NO_MODULE.search(text)
    if found:
        raise MissingDependencyError(
            f"the Python of an executor has no module {found['name']!r}: set PYSPARK_PYTHON (or "
            f"spark.pyspark.python) to one with Flambeau, such as {sys.executable}, or {ADVICE}"
        )
    if "PYTHON_VERSION_MISMATCH" in text:
        raise ConfigError(
            f"executors have another Python than this driver's {sys.version_info.major}."
            f"{sys.version_info.minor}: set PYSPARK_PYTHON (or spark.pyspark.python) to one like it"
        )


def loss_of(error: BaseException) -> AgentEnded:
    """Return what Spark reports about the end of the stage; a task's partition is its agent."""
    text = str(error)
    task, executor = _FAILED_TASK.search(text), _LOST_EXECUTOR.search(text)
    return AgentEnded(
        reason_of(error),
        None if task is None else int(task["partition"]),
        None if executor is None else executor["executor"],
    )


def reason_of(error: BaseException) -> str:
    """Return one line of Spark's error message."""
    text = str(error)
    for cause in _CAUSES:
        found = cause.search(text)
        if found:
            return found["text"].strip()[:300]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
