"""Tasks of the barrier stage: each stores its rows, then runs an agent until the job is over."""

import contextlib
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from flambeau.clusters.agent import agent_main
from flambeau.clusters.base import Launch, adapted
from flambeau.clusters.interfaces import host_of, local_address
from flambeau.clusters.process_starter import make_starter
from flambeau.clusters.spool import Spool
from flambeau.errors import ConfigError

#: Address space (not memory) that a worker needs for libraries, thread stacks and mapped files.
LEAST_ADDRESS_SPACE = 6 << 30
#: Position of a process's start time in /proc/PID/stat, counted after its name.
_START_TIME = 19
#: The column that distinguishes the rows of frames: all frames arrive as one.
MARKER = "flambeau_frame"
#: The schema of the row that a task returns at its end.
ANSWER = pa.schema([("agent", pa.int32()), ("spooled_bytes", pa.int64())])


class Order(msgspec.Struct, frozen=True):
    """Everything that a task receives from the driver."""

    launch: Launch
    frames: tuple[str, ...]
    spool_dir: str | None


def get_ready(
    order: bytes, agent: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Check whether an agent can run here, and load what it will need."""
    told = msgspec.msgpack.decode(order, type=Order)
    prepare(told.launch)
    yield from _nothing_of(batches)


def serve(order: bytes, agent: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run agent number `agent`; at the end, yield one row with its number."""
    told = msgspec.msgpack.decode(order, type=Order)
    launch = prepare(told.launch)
    host = local_address(host_of(launch.coordinator))
    with Spool(told.frames, told.spool_dir) as spool:
        fill = (lambda: _spooled(spool, told.frames, batches)) if told.frames else None
        with contextlib.chdir(launch.folder):
            agent_main(launch, agent, host, fill)
        yield from _nothing_of(batches)
        yield pa.record_batch([pa.array([agent], pa.int32()), pa.array([spool.size])], ANSWER)


def _nothing_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read all batches: Spark ends Python workers that have not read all their input."""
    return (batch for batch in batches if False)


def prepare(launch: Launch) -> Launch:
    """Start to load the libraries, for this task or for the next one of this Python worker.

    The fork server ends with the Python worker, which Spark keeps for a minute without tasks.
    """
    require_address_space()
    launch = msgspec.structs.replace(adapted(launch), siblings=executor())
    make_starter(launch).prepare()
    return launch


def executor() -> str:
    """Return a name for the parent process of all Python workers of this executor."""
    if sys.platform != "linux":
        return ""
    parent = os.getppid()
    status = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()
    return f"{os.readlink('/proc/self/ns/pid')} {parent} {status[_START_TIME]}"


def _spooled(spool: Spool, frames: tuple[str, ...], batches: Iterator[pa.RecordBatch]) -> Spool:
    spool.fill(told_apart(frames, batches))
    return spool


def told_apart(
    frames: tuple[str, ...], batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each frame with its name, without the marker column."""
    for batch in batches:
        if len(frames) == 1:
            yield frames[0], batch
            continue
        marks = batch.column(batch.schema.get_field_index(MARKER))
        rest = batch.drop_columns([MARKER])
        for number, name in enumerate(frames):
            yield name, rest.filter(pc.equal(marks, number))


def require_address_space() -> None:
    """Raise the limit of address space if it is so low that processes would fail obscurely."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY or soft >= LEAST_ADDRESS_SPACE:
        return
    if hard == resource.RLIM_INFINITY or hard >= LEAST_ADDRESS_SPACE:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        return
    raise ConfigError(
        f"spark.executor.pyspark.memory limits this Python worker to {hard >> 20:,} MB of "
        f"addresses, of which torch alone takes gigabytes: set it to at least "
        f"{LEAST_ADDRESS_SPACE >> 30}g, or not at all"
    )
