"""Horovod's API on top of torch.distributed: `import flambeau.compat.horovod as hvd`.

Operations are negotiated by name: ranks may start them in any order, and mismatched requests are
an error on every rank. Nothing is compiled. Scripts import the subpackages `torch` and `common` as
those of `horovod` (see `flambeau.compat.alias`).
"""

from flambeau.compat.horovod import elastic
from flambeau.compat.horovod.basics import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from flambeau.compat.horovod.common.exceptions import HorovodInternalError
from flambeau.compat.horovod.compression import Compression
from flambeau.compat.horovod.functions import (
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from flambeau.compat.horovod.operations.broadcasting import (
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
)
from flambeau.compat.horovod.operations.exchanging import alltoall, alltoall_async
from flambeau.compat.horovod.operations.gathering import (
    allgather,
    allgather_async,
    grouped_allgather,
    grouped_allgather_async,
)
from flambeau.compat.horovod.operations.handles import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    barrier,
    join,
    poll,
    synchronize,
)
from flambeau.compat.horovod.operations.reducing import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)
from flambeau.compat.horovod.operations.scattering import (
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from flambeau.compat.horovod.operations.sparse import sparse_allreduce_async
from flambeau.compat.horovod.optimizer.distributed import DistributedOptimizer
from flambeau.compat.horovod.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from flambeau.compat.horovod.sync_batch_norm import SyncBatchNorm

#: The release whose interface this is.
__version__ = "0.28.1"


__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
