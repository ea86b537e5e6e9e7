"""The variants of broadcast."""

from torch import Tensor

from flambeau.compat.horovod.engine.running import engine
from flambeau.compat.horovod.execution.work import Work
from flambeau.compat.horovod.operations.differentiable import applied
from flambeau.compat.horovod.operations.handles import averaged, check, start, synchronize, work_of
from flambeau.compat.horovod.process_sets import ProcessSet, global_process_set


def _work(
    tensor: Tensor, target: Tensor | None, root: int, name: str | None, process_set: ProcessSet
) -> Work:
    return work_of("broadcast", tensor, name, process_set, target=target, root=int(root))


def broadcast_async(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start to send the tensor of a rank to all; return a handle for `synchronize`."""
    return start(_work(tensor, None, root_rank, name, process_set))


def broadcast_async_(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start to replace a tensor with that of a rank; return a handle for `synchronize`."""
    return start(_work(tensor, tensor, root_rank, name, process_set))


def broadcast(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Return the tensor of a rank."""
    check(tensor)
    # As in Horovod, the gradient is the average over ranks on the root, and 0 elsewhere.
    share = float(engine().place.rank == root_rank)
    return applied(
        lambda given: [synchronize(broadcast_async(given[0], root_rank, name, process_set))],
        lambda gradients: [averaged(gradients[0], process_set) * share],
        [tensor],
    )[0]


def broadcast_(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Replace a tensor with that of a rank, and return it."""
    synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return tensor
