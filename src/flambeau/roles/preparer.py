"""The preparer role: works on pieces of a feature preparation, one after the other."""

import os
import pickle
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from flambeau.clusters.child_process import ChildSpec
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.payloads import PieceDone, PreparerPayload
from flambeau.errors import NotSharedError
from flambeau.features.preparing.out_folder import writing_to
from flambeau.features.preparing.preparation import Preparation, Step
from flambeau.observe.memory import peak_memory
from flambeau.roles.part_loop import work_on_parts


def prepare_parts(child: ChildSpec, coordinator: CoordinatorClient) -> dict[str, Any]:
    """Work on the pieces that the coordinator assigns; return their number."""
    payload = child.payload
    assert isinstance(payload, PreparerPayload)
    job: Preparation
    steps: list[tuple[Step, tuple[int, ...]]]
    job, steps = pickle.loads(payload.job)
    pieces = [(step, piece) for step, numbers in steps for piece in numbers]
    if not job.work.is_dir():
        raise NotSharedError(
            f"{socket.gethostname()} does not see {job.work}, which all machines of the cluster "
            "must see: use a shared folder"
        )
    process = f"{socket.gethostname()}:{os.getpid()}"

    def work(number: int, on_rows: Callable[[int], None]) -> bytes:
        with writing_to(job.out):
            job.do(*pieces[number], on_rows)
        return msgspec.msgpack.encode(PieceDone(process, peak_memory()))

    return {"parts": work_on_parts(coordinator, work)}
