"""Joining torch.distributed: a rendezvous that listens on one interface only."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from flambeau.coordination.link import Link
from flambeau.errors import ConfigError

TIMEOUT = timedelta(minutes=30)


def open_store(link: Link, listener: socket.socket | None) -> TCPStore:
    """The store where all workers meet; rank 0 serves it on its listener."""
    host, port = _meeting_point(link)
    serving = link.spec.rank == 0
    if serving:
        assert listener is not None
        return TCPStore(
            host,
            port,
            link.spec.world,
            is_master=True,
            timeout=TIMEOUT,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
    return TCPStore(
        host, port, link.spec.world, is_master=False, timeout=TIMEOUT, wait_for_workers=False
    )


def set_rank_variables(link: Link) -> None:
    """The environment that torch scripts expect of a launcher."""
    spec = link.spec
    host, port = _meeting_point(link)
    os.environ.update(
        RANK=str(spec.rank),
        WORLD_SIZE=str(spec.world),
        LOCAL_RANK=str(spec.local_rank),
        LOCAL_WORLD_SIZE=str(spec.local_world),
        GROUP_RANK=str(spec.node),
        MASTER_ADDR=host,
        MASTER_PORT=str(port),
    )


@contextmanager
def process_group(link: Link, listener: socket.socket | None, backend: str) -> Iterator[None]:
    """torch.distributed ready for use among all workers of this generation."""
    store = open_store(link, listener)
    dist.init_process_group(
        backend,
        store=PrefixStore(f"generation-{link.spec.generation}", store),
        rank=link.spec.rank,
        world_size=link.spec.world,
        timeout=TIMEOUT,
    )
    if backend == "gloo":
        # Who has nothing to say to the others could end before all of them are connected to it.
        dist.barrier()
    try:
        yield
    finally:
        dist.destroy_process_group()


def pick_device(setting: str, local_rank: int) -> torch.device:
    """The device of a worker: its own GPU if there is one (and it may be used), or the CPU."""
    if setting == "cpu" or (setting == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError("compute.device='cuda': torch sees no GPU here; use 'cpu' or 'auto'")
    device = torch.device("cuda", local_rank % max(1, torch.cuda.device_count()))
    torch.cuda.set_device(device)
    return device


def backend_of(device: torch.device) -> str:
    """nccl for GPUs, gloo for the rest."""
    return "nccl" if device.type == "cuda" else "gloo"


def _meeting_point(link: Link) -> tuple[str, int]:
    store = link.wait_until_all_joined().store
    assert store is not None, "rank 0 is there before anybody begins"
    return store
