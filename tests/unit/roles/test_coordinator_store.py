"""The store of torch.distributed as torch uses it; the coordinator is a thread's work away."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from fake_coordinator import FakeCoordinator

from flambeau.coordination.rendezvous import MAX_VALUE_BYTES, Rendezvous, StoreReply
from flambeau.roles.coordinator_store import CoordinatorStore

SOON = timedelta(seconds=20)
AT_ONCE = timedelta(milliseconds=1)


class Coordinator:
    """Answers all stores, as one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: dict[bytes, FakeCoordinator] = {}
        self._rendezvous = Rendezvous(self._reply)

    def store(self, rank: int) -> CoordinatorStore:
        coordinator = self._links[bytes([rank])] = FakeCoordinator(rank)

        def answer(message: Any, buffers: Sequence[Any]) -> None:
            with self._lock:
                self._rendezvous.handle(bytes([rank]), message, buffers)

        coordinator.answer = answer
        return CoordinatorStore(coordinator, SOON)  # type: ignore[arg-type]

    def _reply(self, peer: bytes, reply: StoreReply, values: Sequence[bytes]) -> None:
        self._links[peer].hear(reply, values)


@pytest.fixture
def stores() -> list[CoordinatorStore]:
    coordinator = Coordinator()
    return [coordinator.store(rank) for rank in range(2)]


def test_gloo_connects_and_adds_up_by_way_of_it(stores: list[CoordinatorStore]) -> None:
    device = dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")
    ready = threading.Barrier(2)

    def work(rank: int) -> float:
        options = dist.ProcessGroupGloo._Options()
        options._devices, options._threads, options._timeout = [device], 1, SOON
        prefixed = dist.PrefixStore("group", stores[rank])
        group = dist.ProcessGroupGloo(prefixed, rank, 2, options)
        ours = torch.tensor([rank + 1.0])
        group.allreduce([ours]).wait()
        ready.wait(SOON.total_seconds())  # neither leaves before the other has its sum
        return ours.item()

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(work, range(2))) == [3.0, 3.0]


@pytest.mark.parametrize("prefixed", [False, True])
def test_it_has_what_other_stores_of_torch_have(
    stores: list[CoordinatorStore], prefixed: bool
) -> None:
    store, other = (dist.PrefixStore("a", each) if prefixed else each for each in stores)
    store.set("text", "value")
    assert other.get("text") == b"value"
    assert [store.add("n", 4), other.add("n", 1)] == [4, 5]
    store.append("text", "s")  # type: ignore[union-attr]
    assert other.multi_get(["n", "text"]) == [b"5", b"values"]
    other.multi_set(["x", "y"], ["1", "2"])  # type: ignore[union-attr]
    store.wait(["x", "y"])
    store.wait(["x"], SOON)
    assert store.check(["x", "y"])
    assert not store.check(["z"])
    assert store.compare_set("x", "1", "3") == b"3"
    assert store.num_keys() == 4
    assert store.delete_key("x")
    assert not store.delete_key("x")
    assert store.has_extended_api()  # type: ignore[union-attr]


def test_get_waits_for_another_worker(stores: list[CoordinatorStore]) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(stores[0].get, "late")
        stores[0].set("early", "1")  # a thread that waits is in nobody's way
        stores[1].set("late", b"\x00\xff")
        assert waiting.result(SOON.total_seconds()) == b"\x00\xff"


def test_a_key_that_does_not_come_is_an_error_that_names_it(
    stores: list[CoordinatorStore],
) -> None:
    with pytest.raises(dist.DistStoreError, match="for missing"):
        stores[0].wait(["missing"], AT_ONCE)
    prefixed = dist.PrefixStore("a", stores[0])
    prefixed.set_timeout(AT_ONCE)
    with pytest.raises(dist.DistStoreError, match="for a/missing"):
        prefixed.get("missing")
    stores[1].set("missing", "now")
    stores[0].set_timeout(SOON)
    assert stores[0].get("missing") == b"now"


def test_what_is_too_large_is_refused_before_it_is_sent(stores: list[CoordinatorStore]) -> None:
    with pytest.raises(dist.DistStoreError, match="at most"):
        stores[0].set("large", bytes(MAX_VALUE_BYTES + 1))
    with pytest.raises(dist.DistStoreError, match="5,000 keys"):
        stores[0].multi_get(["key"] * 5000)
    stores[0].append("grows", bytes(MAX_VALUE_BYTES))
    with pytest.raises(dist.DistStoreError, match="cannot take"):
        stores[0].append("grows", b"1")
