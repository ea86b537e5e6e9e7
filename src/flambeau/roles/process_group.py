"""The process group of torch.distributed, formed through the coordinator."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.errors import ConfigError
from flambeau.roles.coordinator_store import CoordinatorStore

TIMEOUT = timedelta(minutes=30)


def set_rank_variables(coordinator: CoordinatorClient) -> None:
    """Set the variables that torch scripts expect of a launcher, except the store's address."""
    spec = coordinator.spec
    os.environ.update(
        RANK=str(spec.rank),
        WORLD_SIZE=str(spec.world),
        LOCAL_RANK=str(spec.local_rank),
        LOCAL_WORLD_SIZE=str(spec.local_world),
        GROUP_RANK=str(spec.machine),
        NODE_RANK=str(spec.machine),
    )


@contextmanager
def process_group(coordinator: CoordinatorClient, backend: str) -> Iterator[None]:
    """Initialise torch.distributed among all workers of this generation; destroy it at the end."""
    coordinator.wait_until_all_joined()
    store = CoordinatorStore(coordinator, TIMEOUT)
    dist.init_process_group(
        backend,
        store=store,
        rank=coordinator.spec.rank,
        world_size=coordinator.spec.world,
        timeout=TIMEOUT,
    )
    if backend == "gloo":
        # A process that sends nothing could exit before all others are connected to it.
        dist.barrier()
    try:
        yield
    finally:
        dist.destroy_process_group()


def pick_device(setting: str, local_rank: int) -> torch.device:
    """Return a worker's device: its own GPU if there is one and it may be used, or the CPU."""
    if setting == "cpu" or (setting == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError("compute.device='cuda': torch sees no GPU here; use 'cpu' or 'auto'")
    device = torch.device("cuda", local_rank % max(1, torch.cuda.device_count()))
    torch.cuda.set_device(device)
    return device


def backend_of(device: torch.device) -> str:
    """Return the backend of a device: nccl for GPUs, gloo otherwise."""
    return "nccl" if device.type == "cuda" else "gloo"
