"""What a task of the barrier stage does: take its rows, then be an agent until the job is over."""

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

#: What a worker needs of addresses, not of memory: for libraries, stacks of threads, mapped files.
LEAST_ADDRESS_SPACE = 6 << 30
#: Where /proc/PID/stat has the moment at which a process began, after its name.
_START_TIME = 19
#: Tells the rows of one frame from those of another: all frames come as one.
MARKER = "flambeau_frame"
#: The row that a task ends with.
ANSWER = pa.schema([("agent", pa.int32()), ("spooled_bytes", pa.int64())])


class Order(msgspec.Struct, frozen=True):
    """All that a task is told."""

    launch: Launch
    frames: tuple[str, ...]
    spool_dir: str | None


def get_ready(
    order: bytes, agent: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Find out whether an agent can be here, and load what it will need."""
    told = msgspec.msgpack.decode(order, type=Order)
    prepare(told.launch)
    yield from _nothing_of(batches)


def serve(order: bytes, agent: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Be agent number `agent`; at the end, one row that says so."""
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
    """Spark ends Python workers that have not read all they were given."""
    return (batch for batch in batches if False)


def prepare(launch: Launch) -> Launch:
    """Begin to load the libraries, for now or for the next task of this Python worker.

    What has loaded them ends with the Python worker, which Spark keeps for a minute without tasks.
    """
    require_address_space()
    launch = msgspec.structs.replace(adapted(launch), siblings=executor())
    make_starter(launch).prepare()
    return launch


def executor() -> str:
    """Names, on this machine, the process that has started all Python workers of the executor."""
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
    """Return the rows of each frame, without the column that tells them apart."""
    for batch in batches:
        if len(frames) == 1:
            yield frames[0], batch
            continue
        marks = batch.column(batch.schema.get_field_index(MARKER))
        rest = batch.drop_columns([MARKER])
        for number, name in enumerate(frames):
            yield name, rest.filter(pc.equal(marks, number))


def require_address_space() -> None:
    """A limit of addresses that is too low ends processes in ways that nobody understands."""
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
