"""Beginning, end, and where this process is among all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from flambeau.compat.horovod.engine import running
from flambeau.compat.horovod.process_sets import ProcessSet, add_process_set


def init(
    comm: Any = None, process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None
) -> None:
    """Meet the other ranks; call it before anything else, on every rank.

    A second call does nothing. `process_sets` are known to all ranks from the begin; more can be
    added at any time, so "dynamic" is accepted and changes nothing.
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
    """Leave the other ranks; `init` may be called again."""
    running.stop()


def is_initialized() -> bool:
    """Return whether `init` has been called."""
    return running.is_running()


def rank() -> int:
    """Return the rank of this process."""
    return running.place().rank


def size() -> int:
    """Return how many processes there are."""
    return running.place().size


def local_rank() -> int:
    """Return the rank of this process among those of its machine."""
    return running.place().local_rank


def local_size() -> int:
    """Return how many processes there are on this machine."""
    return running.place().local_size


def cross_rank() -> int:
    """Return the rank of this machine among those that have a process of this local rank."""
    return running.place().cross_rank


def cross_size() -> int:
    """Return how many machines have a process of this local rank."""
    return running.place().cross_size


def is_homogeneous() -> bool:
    """Return whether all machines have the same number of processes."""
    return running.place().homogeneous


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Write a timeline for chrome://tracing from now on, on rank 0."""
    if rank() == 0:
        running.engine().executor.timeline.start(Path(file_path), mark_cycles=mark_cycles)


def stop_timeline() -> None:
    """End the timeline."""
    running.engine().executor.timeline.stop()


def gloo_built() -> bool:
    """Return True: operations are gloo's, or in shared memory."""
    return True


def gloo_enabled() -> bool:
    """Return True: operations are gloo's, or in shared memory."""
    return True


def mpi_built() -> bool:
    """Return False: MPI may start the processes, and is not needed for more."""
    return False


def mpi_enabled() -> bool:
    """Return False: MPI may start the processes, and is not needed for more."""
    return False


def mpi_threads_supported() -> bool:
    """Return False: there is no MPI."""
    return False


def nccl_built() -> int:
    """Return 0: tensors of GPUs are summed on the CPU."""
    return 0


def ddl_built() -> bool:
    """Return False."""
    return False


def ccl_built() -> bool:
    """Return False."""
    return False


def cuda_built() -> bool:
    """Return whether torch can use GPUs of NVIDIA."""
    return torch.version.cuda is not None


def rocm_built() -> bool:
    """Return whether torch can use GPUs of AMD."""
    return torch.version.hip is not None
