"""The peer of the parameter-server benchmark: rows in a tensor, behind torch's own RPC.

rpc_rows.py server|client < settings: rows, transport, update, directory
"""

import os
import sys
from typing import Any, final

import torch
from asking import answer_all, settings
from rows import BATCH_ROWS, DIM, FEW_ROWS, LEARNING_RATE, Requests, RowClient, batches
from torch import Tensor
from torch.distributed import rpc

EPSILON = 1e-10
TRANSPORTS = {"any": None, "tcp": ["uv"]}

#: What the server serves; row numbers are ids, so there is no index to search.
tables: dict[str, Any] = {}


def fill(rows: int) -> None:
    """Values, and the sums of squares that Adagrad keeps."""
    values = torch.nn.Parameter(torch.empty(rows, DIM).uniform_(-0.05, 0.05))
    tables["values"] = values
    tables["optimizer"] = optimizer = torch.optim.Adagrad([values], LEARNING_RATE, eps=EPSILON)
    tables["squares"] = optimizer.state[values]["sum"]


@torch.no_grad()
def pull(ids: Tensor) -> Tensor:
    """The rows of `ids`."""
    return tables["values"].index_select(0, ids)  # type: ignore[no-any-return]


@torch.no_grad()
def push_by_index(ids: Tensor, grads: Tensor) -> None:
    """Adagrad in the operations that a user would write for distinct ids."""
    squares = tables["squares"].index_select(0, ids).addcmul_(grads, grads)
    tables["squares"].index_copy_(0, ids, squares)
    step = grads / squares.sqrt_().add_(EPSILON)
    tables["values"].index_add_(0, ids, step, alpha=-LEARNING_RATE)


def push_by_optimizer(ids: Tensor, grads: Tensor) -> None:
    """Adagrad as torch has it for sparse gradients, which it sorts first."""
    values = tables["values"]
    values.grad = torch.sparse_coo_tensor(ids[None], grads, values.shape, check_invariants=False)
    tables["optimizer"].step()


UPDATES = {"index": push_by_index, "optimizer": push_by_optimizer}


@final
class RpcClient(RowClient):
    """Calls the functions above on the server."""

    def __init__(self, rows: int, update: str) -> None:
        self._ids = [torch.from_numpy(batch) for batch in batches(rows, seed=0)]
        self._grads = torch.randn(BATCH_ROWS, DIM)
        self._update = UPDATES[update]

    def begin_pull(self, batch: int, *, few: bool = False) -> Any:
        """See `RowClient`."""
        # Of a view, torch would send all that it is a view of.
        ids = self._ids[batch][:FEW_ROWS].clone() if few else self._ids[batch]
        return rpc.rpc_async("server", pull, args=(ids,))

    def finish_pull(self, pending: Any) -> None:
        """See `RowClient`."""
        pending.wait()

    def begin_push(self, batch: int) -> Any:
        """See `RowClient`."""
        ids = self._ids[batch]
        return rpc.rpc_async("server", self._update, args=(ids, self._grads[: len(ids)]))

    def finish_push(self, pending: Any) -> None:
        """See `RowClient`."""
        pending.wait()


def main(role: str, rows: int, transport: str, update: str, directory: str) -> None:
    # Nothing listens beyond this machine.
    os.environ["TP_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if role == "server":
        fill(rows)
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"file://{directory}/rendezvous",
        rpc_timeout=60,
        _transports=TRANSPORTS[transport],
        _channels=None if transport == "any" else ["basic"],
    )
    rank = ("server", "client").index(role)
    rpc.init_rpc(role, rank=rank, world_size=2, rpc_backend_options=options)
    if role == "client":
        answer_all(Requests(RpcClient(rows, update)).answer)
    rpc.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], **settings())
