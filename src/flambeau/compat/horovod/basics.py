"""Initialization, shutdown, and the ranks of this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from flambeau.compat.horovod.engine import running
from flambeau.compat.horovod.process_sets import ProcessSet, add_process_set


def init(
    comm: Any = None, process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None
) -> None:
    """Connect to the other ranks; call it before anything else, on every rank.

    A second call does nothing. `process_sets` are registered on all ranks; more can be added at any
    time, so "dynamic" is accepted and changes nothing.
    """
    if comm is not None and (not isinstance(comm, Sequence) or list(comm)):
        raise ValueError(
            "hvd.init(comm=...) is not supported; use process_sets for a part of the ranks"
        )
    first = not running.is_running()
    running.start()
    given = () if process_sets is None or isinstance(process_sets, str) else process_sets
    if first:
        for each in given:
            add_process_set(each)


def shutdown() -> None:
    """Disconnect from the other ranks; `init` may be called again."""
    running.stop()


def is_initialized() -> bool:
    """Return whether `init` has been called."""
    return running.is_running()


def rank() -> int:
    """Return the rank of this process."""
    return running.place().rank


def size() -> int:
    """Return the number of processes."""
    return running.place().size


def local_rank() -> int:
    """Return the rank of this process on its machine."""
    return running.place().local_rank


def local_size() -> int:
    """Return the number of processes on this machine."""
    return running.place().local_size


def cross_rank() -> int:
    """Return the rank of this machine among those that have a process with this local rank."""
    return running.place().cross_rank


def cross_size() -> int:
    """Return the number of machines that have a process with this local rank."""
    return running.place().cross_size


def is_homogeneous() -> bool:
    """Return whether all machines have the same number of processes."""
    return running.place().homogeneous


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Start to write a timeline for chrome://tracing, on rank 0."""
    if rank() == 0:
        running.engine().executor.timeline.start(Path(file_path), mark_cycles=mark_cycles)


def stop_timeline() -> None:
    """Stop the timeline and close its file."""
    running.engine().executor.timeline.stop()


def gloo_built() -> bool:
    """Return True: operations use Gloo or shared memory."""
    return True


def gloo_enabled() -> bool:
    """Return True: operations use Gloo or shared memory."""
    return True


def mpi_built() -> bool:
    """Return False: MPI may start the processes, but operations do not use it."""
    return False


def mpi_enabled() -> bool:
    """Return False: MPI may start the processes, but operations do not use it."""
    return False


def mpi_threads_supported() -> bool:
    """Return False: there is no MPI."""
    return False


def nccl_built() -> int:
    """Return 0: GPU tensors are summed on the CPU."""
    return 0


def ddl_built() -> bool:
    """Return False."""
    return False


def ccl_built() -> bool:
    """Return False."""
    return False


def cuda_built() -> bool:
    """Return whether torch can use NVIDIA GPUs."""
    return torch.version.cuda is not None


def rocm_built() -> bool:
    """Return whether torch can use AMD GPUs."""
    return torch.version.hip is not None
