"""Checks of Horovod's interface that every rank of a group runs; the arguments name them."""

import itertools
import json
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from flambeau.compat import alias

alias("horovod")

import horovod.torch as hvd  # noqa: E402
from horovod.common.exceptions import HorovodInternalError  # noqa: E402

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SHAPES = [(), (0,), (5,), (17, 3), (2, 3, 4)]


@contextmanager
def raises(kind: Any, *words: str) -> Any:
    try:
        yield
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        if missing:
            raise AssertionError(f"{missing} not in {error}") from None
    else:
        raise AssertionError(f"no {kind}")


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def tensor(dtype: torch.dtype, shape: tuple[int, ...], rank: int) -> Tensor:
    count = int(torch.Size(shape).numel())
    return ((torch.arange(count) + rank) % 5).reshape(shape).to(dtype)


def check_place() -> None:
    ranks = hvd.allgather(torch.tensor([[hvd.rank(), hvd.local_rank(), hvd.cross_rank()]]))
    same(ranks[:, 0], torch.arange(hvd.size()))
    same(ranks[:, 1].sort().values, torch.arange(hvd.local_size()))
    assert hvd.local_size() == hvd.size()
    assert hvd.cross_size() == 1
    assert hvd.is_homogeneous()


def check_reductions_of_all_types() -> None:
    n = hvd.size()
    for dtype, shape in itertools.product([*INTEGERS, *FLOATS], SHAPES):
        every = torch.stack([tensor(dtype, shape, rank) for rank in range(n)])
        own = tensor(dtype, shape, hvd.rank())
        kept = own.clone()
        total = every.double().sum(0)
        expected = {
            hvd.Sum: total.to(dtype),
            hvd.Average: (total.to(dtype) / n if dtype in FLOATS else total.div(n).to(dtype)),
            hvd.Min: every.double().amin(0).to(dtype),
            hvd.Max: every.double().amax(0).to(dtype),
            hvd.Product: every.double().prod(0).to(dtype),
        }
        for op, result in expected.items():
            same(hvd.allreduce(own, op=op), result.to(dtype))
        same(own, kept)
        same(hvd.allreduce_(own, op=hvd.Sum), expected[hvd.Sum])
        same(own, expected[hvd.Sum])
    mixed = torch.tensor([False, True, hvd.rank() == 0])
    same(hvd.allreduce(mixed, op=hvd.Sum), torch.tensor([False, True, True]))
    same(hvd.allreduce(mixed, op=hvd.Min), torch.tensor([False, True, n == 1]))


def check_factors() -> None:
    n = hvd.size()
    for dtype in [torch.int32, torch.int64, torch.float16, torch.float32, torch.float64]:
        own = torch.arange(7).to(dtype)
        wide = own.double() if dtype in INTEGERS else own.float() if own.itemsize < 8 else own
        before = (wide * 0.7).to(dtype) * n
        same(hvd.allreduce(own, op=hvd.Sum, prescale_factor=0.7), before)
        after = ((wide * n).to(dtype).to(wide.dtype) * 0.7).to(dtype)
        same(hvd.allreduce(own, op=hvd.Sum, postscale_factor=0.7), after)


def check_many_in_flight_of_all_kinds() -> None:
    """Also in the buffer that they share, and the second time by their numbers in the cache."""
    rank, n = hvd.rank(), hvd.size()
    every = [
        tensor(dtype, shape, 0) for dtype in [*INTEGERS, *FLOATS] for shape in [*SHAPES, (0, 4)]
    ]
    for _ in range(2):
        new = [
            hvd.allreduce_async(each, op=hvd.Sum, name=f"new{i}") for i, each in enumerate(every)
        ]
        owned = [each.clone() for each in every]
        here = [
            hvd.allreduce_async_(each, op=hvd.Sum, name=f"own{i}") for i, each in enumerate(owned)
        ]
        for handle, given in zip(new, every, strict=True):
            same(hvd.synchronize(handle), given * n)
        for handle, given, own in zip(here, every, owned, strict=True):
            assert hvd.synchronize(handle) is own
            same(own, given * n)
    columns = (torch.arange(12.0).reshape(3, 4) + rank).t()
    parameter = nn.Parameter(torch.full((3,), float(rank)))
    handles = [
        hvd.allreduce_async_(each, op=hvd.Max) for each in (columns, parameter, columns[::2])
    ]
    for handle in handles:
        hvd.synchronize(handle)
    same(columns, (torch.arange(12.0).reshape(3, 4) + n - 1).t())
    same(parameter.detach(), torch.full((3,), n - 1.0))
    assert parameter.requires_grad
    with raises(HorovodInternalError, "allreduce"):
        hvd.allreduce_(torch.zeros(1).expand(3))  # three elements in one place
    same(hvd.allreduce(torch.tensor(1), op=hvd.Sum), torch.tensor(n))


def check_gather_and_broadcast_of_all_types() -> None:
    rank, n = hvd.rank(), hvd.size()
    for dtype in [*INTEGERS, *FLOATS, torch.bool]:
        parts = [tensor(dtype, (other, 3), other) for other in range(n)]
        same(hvd.allgather(parts[rank]), torch.cat(parts))
        equal = [tensor(dtype, (2, 3), other) for other in range(n)]
        same(hvd.allgather(equal[rank]), torch.cat(equal))
        for shape in SHAPES:
            own, root = tensor(dtype, shape, rank), tensor(dtype, shape, n - 1)
            same(hvd.broadcast(own, n - 1), root)
            hvd.broadcast_(own, n - 1)
            same(own, root)
    same(hvd.allgather(torch.empty(0, 4)), torch.empty(0, 4))
    columns = torch.arange(12).reshape(3, 4).t()
    same(hvd.broadcast(columns + rank, 0), columns)
    hvd.broadcast_(columns[::2], 0)


def check_exchange() -> None:
    rank, n = hvd.rank(), hvd.size()
    for dtype in [*INTEGERS, *FLOATS, torch.bool]:
        sent = torch.tensor([to for to in range(n) for _ in range(rank + 1)]).to(dtype)
        rows, received = hvd.alltoall(sent.reshape(-1, 1), splits=[rank + 1] * n)
        same(received, torch.arange(1, n + 1, dtype=torch.int32))
        same(rows, torch.full((n * (n + 1) // 2, 1), rank).to(dtype))
        same(hvd.alltoall(torch.arange(n).to(dtype)), torch.full((n,), rank).to(dtype))
        rows, received = hvd.synchronize(hvd.alltoall_async(torch.arange(n).to(dtype)))
        same(rows, torch.full((n,), rank).to(dtype))
        same(received, torch.ones(n, dtype=torch.int32))
        own = torch.arange(2 * n + 1).to(dtype)
        if dtype != torch.bool:
            begin = 2 * rank + min(rank, 1)
            mine = own[begin : begin + 2 + (rank < 1)]
            same(hvd.reducescatter(own, op=hvd.Sum), mine * n)
    empty, none = hvd.alltoall(torch.empty(0, 3), splits=torch.zeros(n, dtype=torch.int32))
    assert empty.shape == (0, 3)
    assert none.tolist() == [0] * n
    for tensor_, op in [(torch.tensor(1.0), hvd.Sum), (torch.ones(4), hvd.Adasum)]:
        with raises(RuntimeError, "reducescatter"):
            hvd.reducescatter(tensor_, op=op)
    with raises(ValueError):
        hvd.alltoall(torch.ones(4), splits=[5] * n)
    with raises(ValueError):
        hvd.alltoall(torch.ones(4), splits=torch.ones(n) / 2)


def check_gradients() -> None:
    rank, n = hvd.rank(), hvd.size()
    weight = float(rank + 1)
    total = n * (n + 1) / 2

    def gradient(function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> Tensor:
        leaf = torch.ones(shape, requires_grad=True)
        (function(leaf) * weight).sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    same(gradient(lambda x: hvd.allreduce(x, op=hvd.Sum), (3,)), torch.full((3,), total))
    same(gradient(lambda x: hvd.allreduce(x), (3,)), torch.full((3,), total) / n)
    same(gradient(lambda x: hvd.grouped_allreduce([x, x])[1], (3,)), torch.full((3,), total) / n)
    same(gradient(hvd.allgather, (rank + 1, 2)), torch.full((rank + 1, 2), total / n))
    grouped = gradient(lambda x: hvd.grouped_allgather([x, 2 * x])[1], (rank + 1, 2))
    same(grouped, torch.full((rank + 1, 2), 2 * total / n))
    of_root = total / n if rank == 0 else 0.0
    same(gradient(lambda x: hvd.broadcast(x, 0), (3,)), torch.full((3,), of_root))
    same(gradient(hvd.alltoall, (n,)), torch.arange(1.0, n + 1))
    scattered = gradient(lambda x: hvd.reducescatter(x, op=hvd.Average), (n,))
    same(scattered, torch.arange(1.0, n + 1))
    scattered = gradient(lambda x: hvd.grouped_reducescatter([x, x], op=hvd.Sum)[1], (n,))
    same(scattered, torch.arange(1.0, n + 1) * n)

    def some_rows(x: Tensor) -> Any:
        return hvd.alltoall(x, splits=[1] * n)[0]

    same(gradient(some_rows, (n + 2,)), torch.tensor([*range(1, n + 1), 0, 0]).float())
    leaves = [torch.ones(3, requires_grad=True) for _ in range(2)]
    for each in hvd.grouped_allreduce(leaves, op=hvd.Sum):
        each.sum().backward()  # one after the other
    for leaf in leaves:
        same(leaf.grad, torch.full((3,), float(n)))


def check_names_in_any_order() -> None:
    rank, n = hvd.rank(), hvd.size()
    for _ in range(2):  # the second time by numbers in the cache
        order = list(range(200))
        torch.manual_seed(rank)
        order = [order[i] for i in torch.randperm(200).tolist()]
        handles = {
            i: hvd.allreduce_async(torch.full((i % 7,), float(i)), name=f"n{i}", op=hvd.Sum)
            for i in order
        }
        for i, handle in handles.items():
            same(hvd.synchronize(handle), torch.full((i % 7,), float(i)) * n)
            assert hvd.poll(handle)


def check_all_kinds_in_any_order() -> None:
    """Operations of all kinds in flight together, begun in another order on each rank."""
    rank, n = hvd.rank(), hvd.size()
    everywhere = torch.arange(n).repeat_interleave
    kinds: list[Callable[[str, int], tuple[int, Any]]] = [
        lambda name, count: (
            hvd.allreduce_async(torch.full((count,), rank + 1), name=name, op=hvd.Sum),
            torch.full((count,), n * (n + 1) // 2),
        ),
        lambda name, count: (
            hvd.allgather_async(torch.full((count,), rank), name=name),
            everywhere(count),
        ),
        lambda name, count: (
            hvd.broadcast_async(torch.full((count,), rank), n - 1, name=name),
            torch.full((count,), n - 1),
        ),
        lambda name, count: (
            hvd.alltoall_async(torch.full((n * count,), rank), name=name),
            (everywhere(count), torch.full((n,), count, dtype=torch.int32)),
        ),
        lambda name, count: (
            hvd.reducescatter_async(torch.full((n * count,), rank), name=name, op=hvd.Sum),
            torch.full((count,), n * (n - 1) // 2),
        ),
        lambda name, count: (
            hvd.grouped_allreduce_async([torch.full((count,), rank)] * 2, name=name, op=hvd.Max),
            [torch.full((count,), n - 1)] * 2,
        ),
    ]
    for seed in range(3):
        shared, own = random.Random(seed), random.Random(10 * seed + rank)
        chosen = [(f"any{i}", shared.choice(kinds), shared.choice((0, 1, 300))) for i in range(90)]
        own.shuffle(chosen)
        for handle, expected in [begin(name, count) for name, begin, count in chosen]:
            same(hvd.synchronize(handle), expected)


def check_more_names_than_the_cache_has() -> None:
    for i in range(3000):
        hvd.allreduce(torch.ones(1), name=f"many{i % 1500}")


def check_mismatches() -> None:
    odd = hvd.rank() % 2
    ones, number = torch.ones(3), [torch.int32, torch.int64][odd]
    more = torch.ones(3, *[1] * odd)[:, None]
    cases: dict[str, Callable[[], object]] = {
        "shapes": lambda: hvd.allreduce(torch.ones(3 + odd), name="m"),
        "data types": lambda: hvd.allreduce(ones.to(number), name="m"),
        "reduction operations": lambda: hvd.allreduce(torch.ones(3), name="m", op=[0, 3][odd]),
        "factors": lambda: hvd.allreduce(torch.ones(3), name="m", prescale_factor=1.0 + odd),
        "root ranks": lambda: hvd.broadcast(torch.ones(3), odd, name="m"),
        "shapes (all": lambda: hvd.allgather(more, name="m"),
        "all dimensions but the first": lambda: hvd.allgather(torch.ones(3, 1 + odd), name="m"),
        "groups": lambda: hvd.grouped_allreduce([torch.ones(1)] * (1 + odd), name="m"),
        "ranks of a process set": lambda: hvd.add_process_set([odd]),
    }
    for words, call in cases.items():
        with raises(HorovodInternalError, "Mismatched", words):
            call()
        same(hvd.allreduce(torch.tensor(1), op=hvd.Sum), torch.tensor(hvd.size()))
    with raises(HorovodInternalError, "from rank 77"):
        hvd.broadcast(torch.ones(3), 77)


def check_names_in_two_process_sets() -> None:
    if hvd.size() == 2:  # a process set of one waits for nobody
        return
    own = hvd.add_process_set([0, 1])
    chosen = own if hvd.rank() == 1 else hvd.global_process_set
    with raises(HorovodInternalError, "Mismatched process sets"):
        hvd.allreduce(torch.ones(2), name="crossed", process_set=chosen)
    hvd.remove_process_set(own)


def check_duplicate_names() -> None:
    if hvd.rank() == 0:
        first = hvd.allreduce_async(torch.ones(3), name="twice")
        with raises(ValueError, "in flight"):
            hvd.allreduce_async(torch.ones(3), name="twice")
    hvd.barrier()
    if hvd.rank() > 0:
        first = hvd.allreduce_async(torch.ones(3), name="twice")
    hvd.synchronize(first)


def check_groups_and_sparse() -> None:
    n = hvd.size()
    tensors = [torch.full((i,), 1.0 + hvd.rank()) for i in range(5)]
    mean = (n + 1) / 2
    for found in (
        hvd.grouped_allreduce(tensors),
        hvd.synchronize(hvd.grouped_allreduce_async(tensors)),
        hvd.grouped_allreduce_([each.clone() for each in tensors]),
    ):
        same(list(found), [torch.full((i,), mean) for i in range(5)])
    rows = hvd.grouped_allgather([torch.full((hvd.rank(),), 1.0), torch.ones(1)])
    same(rows, [torch.ones(n * (n - 1) // 2), torch.ones(n)])
    parts = hvd.grouped_reducescatter([torch.ones(n), torch.ones(2 * n)], op=hvd.Sum)
    same(parts, [torch.full((1,), float(n)), torch.full((2,), float(n))])
    sparse = torch.sparse_coo_tensor([[hvd.rank(), 4]], [1.0, 1.0], (5,), check_invariants=True)
    handle = hvd.sparse_allreduce_async(sparse, name="sparse", op=hvd.Sum)
    expected = torch.cat([torch.ones(n), torch.zeros(4 - n), torch.full((1,), float(n))])
    same(hvd.synchronize(handle).to_dense(), expected)


def check_process_sets() -> None:
    rank, n = hvd.rank(), hvd.size()
    last = hvd.add_process_set([n - 1])
    most = hvd.add_process_set(hvd.ProcessSet(range(n - 1)))
    mine = last if rank == n - 1 else most
    other = most if rank == n - 1 else last
    assert mine.included()
    assert not other.included()
    total = hvd.allreduce(torch.tensor(rank), op=hvd.Sum, name="both", process_set=mine)
    assert int(total) == sum(mine.ranks or [])
    root = (mine.ranks or [])[-1]
    assert int(hvd.broadcast(torch.tensor(rank), root, process_set=mine)) == root
    assert hvd.allgather_object(rank, process_set=mine) == mine.ranks
    with raises(ValueError, "not in process set"):
        hvd.allreduce(torch.ones(1), process_set=other)
    with raises(ValueError, "exists already"):
        hvd.add_process_set([n - 1])
    assert hvd.remove_process_set(most)
    with raises(ValueError, "not known"):
        hvd.allreduce(torch.ones(1), process_set=most)
    assert hvd.remove_process_set(last)
    with raises(ValueError):
        hvd.remove_process_set(hvd.global_process_set)


def check_join() -> None:
    rank, n = hvd.rank(), hvd.size()
    for step in range(rank + 1):
        found = hvd.allreduce(torch.ones(2, dtype=torch.float64), name=f"step{step}", op=hvd.Sum)
        same(found, torch.full((2,), float(n - step), dtype=torch.float64))
    assert hvd.join() == n - 1
    assert hvd.join() in range(n)


def check_join_of_what_was_repeated_and_of_what_cannot_be() -> None:
    rank, n = hvd.rank(), hvd.size()
    given = torch.arange(1, 6, dtype=torch.int32) * 6
    for first in range(2):
        for call in range(3):
            if rank != first or call < 2:
                handles = [hvd.allreduce_async(given, name=f"rows{i}") for i in range(3)]
                shares = n - 1 if call == 2 else n
                for handle in handles:
                    same(hvd.synchronize(handle), (given * shares).div(n).to(torch.int32))
        if rank != first:
            with raises(HorovodInternalError, "join()"):
                hvd.allgather(given)
            with raises(HorovodInternalError, "join()"):
                hvd.broadcast(given, first)
        hvd.join()
        same(hvd.allgather(torch.tensor([rank])), torch.arange(n))  # without a name


def check_objects() -> None:
    rank, n = hvd.rank(), hvd.size()
    for form in (
        lambda each: each.state_dict(),
        lambda each: each.named_parameters(),
        lambda each: list(each.parameters()),
    ):
        model = nn.Linear(2, 1)
        nn.init.constant_(model.weight, float(rank))
        hvd.broadcast_parameters(form(model), root_rank=1)
        same(model.weight.detach(), torch.ones(1, 2))
    assert hvd.broadcast_object({"rank": rank}, 1) == {"rank": 1}
    assert hvd.allgather_object("x" * rank) == ["x" * other for other in range(n)]


def net(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def check_optimizer_equals_one_process() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(12, 4), torch.randint(0, 3, (12,))
    mine = slice(hvd.rank() * 12 // hvd.size(), (hvd.rank() + 1) * 12 // hvd.size())
    loss = nn.functional.cross_entropy
    for options, tolerance in [
        ({}, 1e-6),
        ({"compression": hvd.Compression.fp16}, 1e-3),
        ({"compression": hvd.Compression.bf16}, 1e-2),
        ({"backward_passes_per_step": 2}, 1e-6),
        ({"gradient_predivide_factor": 2.0}, 1e-6),
        ({"groups": 2}, 1e-6),
    ]:
        passes = options.get("backward_passes_per_step", 1)
        alone, model = net(0), net(hvd.rank())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        one = torch.optim.SGD(alone.parameters(), 0.1, momentum=0.9)
        many = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        many = hvd.DistributedOptimizer(many, model.named_parameters(), **options)
        assert isinstance(many, torch.optim.SGD)
        for step in range(4):
            one.zero_grad()
            (loss(alone(x), y) * passes).backward()
            nn.utils.clip_grad_norm_(alone.parameters(), 0.5)
            one.step()
            many.zero_grad(set_to_none=step % 2 == 0)
            for _ in range(passes):
                loss(model(x[mine]), y[mine]).backward()
            many.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            with many.skip_synchronize():
                many.step()
        for expected, found in zip(alone.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def weights(model: nn.Module) -> Tensor:
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def equal_everywhere(model: nn.Module, process_set: Any = hvd.global_process_set) -> None:
    every = hvd.allgather(weights(model)[None], process_set=process_set)
    same(every, every[:1].expand_as(every))


def check_every_optimizer_of_torch() -> None:
    """Ranks use different parameters; state and settings travel from rank 0 to all."""
    known = torch.optim.Optimizer.__subclasses__()
    not_dense = (torch.optim.LBFGS, torch.optim.SparseAdam)
    chosen = [each for each in known if each.__module__.startswith("torch.optim")]
    for cls in sorted(set(chosen) - set(not_dense), key=lambda each: each.__name__):
        with_bias = cls.__name__ != "Muon"  # is for matrices only

        def made(
            cls: Any = cls, with_bias: bool = with_bias
        ) -> tuple[nn.Sequential, torch.optim.Optimizer]:
            model = nn.Sequential(nn.Linear(4, 3, with_bias), nn.Linear(3, 3, with_bias))
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            own = cls(model.parameters(), lr=0.02 * (hvd.rank() + 1))
            return model, hvd.DistributedOptimizer(own, model.named_parameters())

        model, optimizer = made()
        for part in (model, model[0]):
            optimizer.zero_grad()
            used = part if hvd.rank() == 0 else model
            used(torch.ones(2, 4) + hvd.rank()).square().sum().backward()
            optimizer.step()
        fresh, received = made()
        if hvd.rank() == 0:
            fresh.load_state_dict(model.state_dict())
            received.load_state_dict(optimizer.state_dict())
        hvd.broadcast_parameters(fresh.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(received, root_rank=0)
        assert received.param_groups[0]["lr"] == 0.02, cls
        states = hvd.allgather_object(received.state_dict()["state"])
        for other in states[1:]:
            torch.testing.assert_close(other, states[0], rtol=0, atol=0)
        fresh(torch.ones(2, 4)).sum().backward()
        received.step()
        equal_everywhere(fresh)


def check_training_on_uneven_data() -> None:
    model = net(hvd.rank())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    many = hvd.DistributedOptimizer(sgd, model.named_parameters())
    for _ in range(2):
        for batch in range(2 + hvd.rank()):
            many.zero_grad()
            model(torch.full((2, 4), 0.1 * batch)).square().sum().backward()
            many.step()
        last = hvd.join()
        assert last == hvd.size() - 1
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    equal_everywhere(model)


def check_optimizers_of_process_sets() -> None:
    n = hvd.size()
    sets = [hvd.add_process_set(range(n - 1)), hvd.add_process_set([n - 1])]
    (mine,) = [each for each in sets if each.included()]
    root = mine.ranks[0]
    model = net(hvd.rank())
    hvd.broadcast_parameters(model.state_dict(), root, process_set=mine)
    sgd = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    many = hvd.DistributedOptimizer(sgd, model.named_parameters(), process_set=mine)
    hvd.broadcast_optimizer_state(many, root, process_set=mine)
    for _ in range(2):
        many.zero_grad()
        model(torch.full((2, 4), 1.0 + hvd.rank())).square().sum().backward()
        many.step()
    equal_everywhere(model, mine)
    for each in sets:
        hvd.remove_process_set(each)


def check_gradients_in_groups_of_which_parts_are_missing() -> None:
    for groups in (1, 3, 100, None):
        model = net(0)
        chosen = [list(model[0].parameters())] if groups is None else groups
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        many = hvd.DistributedOptimizer(sgd, model.named_parameters(), groups=chosen)
        for _ in range(2):
            many.zero_grad()
            used = model if hvd.rank() == 0 else model[0]
            used(torch.full((2, 4), 1.0 + hvd.rank())).sum().backward()
            many.step()
        equal_everywhere(model)
    with raises(ValueError, "groups"):
        hvd.DistributedOptimizer(torch.optim.SGD(net(0).parameters(), 0.1), groups=-1)


def check_optimizer_misuse() -> None:
    model = net(0)
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    with raises(ValueError, "unique"):
        hvd.DistributedOptimizer(sgd, [("a", each) for each in model.parameters()])
    with raises(ValueError, "not named"):
        hvd.DistributedOptimizer(sgd, [("a", next(model.parameters()))])
    with raises(ValueError, "predivide"):
        hvd.DistributedOptimizer(sgd, gradient_predivide_factor=2.0, op=hvd.Sum)
    many = hvd.DistributedOptimizer(sgd, model.named_parameters())
    model(torch.ones(1, 4)).sum().backward()
    with raises(AssertionError, "zero_grad"):
        many.zero_grad()
    with raises(AssertionError, "backward_passes_per_step"):
        model(torch.ones(1, 4)).sum().backward()
    many.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        many.step()
    assert any("skip_synchronize" in str(each.message) for each in caught)


def check_two_optimizers_and_unused_parameters() -> None:
    first, second = net(0), net(1)
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD(each.parameters(), 1.0))
        for each in (first, second)
    ]
    before = [each.detach().clone() for each in second.parameters()]
    (first(torch.ones(2, 4)).sum() + second[0](torch.ones(2, 4)).sum() * hvd.rank()).backward()
    for each in optimizers:
        each.step()
    mean = 2 * (hvd.size() - 1) / 2
    same(second[0].bias.detach(), before[1] - mean)
    same(second[2].bias.detach(), before[3])  # got no gradient on any rank


def check_sparse_gradients() -> None:
    for as_dense in (False, True):
        table = nn.Embedding(6, 2, sparse=True)
        nn.init.zeros_(table.weight)
        sgd = torch.optim.SGD(table.parameters(), 1.0)
        many = hvd.DistributedOptimizer(sgd, table.named_parameters(), sparse_as_dense=as_dense)
        table(torch.tensor([hvd.rank(), 5])).sum().backward()
        many.step()
        torch.testing.assert_close(table.weight[5].detach(), torch.full((2,), -1.0))
        torch.testing.assert_close(table.weight[0].detach(), torch.full((2,), -1.0 / hvd.size()))


def check_adasum() -> None:
    if hvd.size() == 3:
        with raises(NotImplementedError, "power of two"):
            hvd.allreduce(torch.ones(2), op=hvd.Adasum)
        return
    orthogonal = torch.eye(2)[hvd.rank()]
    torch.testing.assert_close(hvd.allreduce(orthogonal, op=hvd.Adasum), torch.ones(2))
    torch.testing.assert_close(hvd.allreduce(torch.ones(2), op=hvd.Adasum), torch.ones(2))
    model = net(0)
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    many = hvd.DistributedOptimizer(sgd, model.named_parameters(), op=hvd.Adasum)
    before = model[2].bias.detach().clone()
    model(torch.ones(1, 4)).sum().backward()
    many.step()
    torch.testing.assert_close(model[2].bias.detach(), before - 0.1)


def check_optimizer_state() -> None:
    sgd = torch.optim.SGD(net(0).parameters(), lr=0.1, momentum=0.5 + hvd.rank(), nesterov=True)
    hvd.broadcast_optimizer_state(sgd, root_rank=1)
    assert sgd.param_groups[0]["momentum"] == 1.5
    for parameter in sgd.param_groups[0]["params"]:
        same(parameter.grad, torch.zeros_like(parameter))
    with raises(ValueError, "LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(net(0).parameters()), 0)
    adam = torch.optim.Adam(net(0).parameters(), lr=0.1 * (hvd.rank() + 1))
    if hvd.rank() == 0:
        for parameter in adam.param_groups[0]["params"]:
            parameter.grad = torch.ones_like(parameter)
        adam.step()
    hvd.broadcast_optimizer_state(adam, root_rank=0)
    assert adam.param_groups[0]["lr"] == 0.1
    states = list(adam.state.values())
    assert len(states) == 4
    same(states[1]["exp_avg"], torch.full((8,), 0.1))


def check_batch_norm() -> None:
    n, mine = hvd.size(), slice(hvd.rank() * 4, hvd.rank() * 4 + 4)
    torch.manual_seed(0)
    x, weight = torch.randn(4 * n, 3, 5) + 10, torch.randn(4 * n, 3, 5)
    whole, part = x.clone().requires_grad_(), x[mine].clone().requires_grad_()
    alone, many = nn.BatchNorm1d(3), hvd.SyncBatchNorm(3)
    (alone(whole) * weight).sum().backward()
    (many(part) * weight[mine]).sum().backward()
    assert whole.grad is not None
    torch.testing.assert_close(part.grad, whole.grad[mine], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(many.running_var, alone.running_var)
    torch.testing.assert_close(many.running_mean, alone.running_mean)


def check_timeline() -> None:
    path = Path("timeline.json")
    hvd.start_timeline(str(path), mark_cycles=True)
    hvd.allreduce(torch.ones(2), name="drawn")
    hvd.stop_timeline()
    hvd.barrier()
    if hvd.rank() == 0:
        events = json.loads(path.read_text())
        names = {event.get("name") for event in events}
        assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "CYCLE_START"} <= names
        assert "start_time_since_epoch_in_micros" in events[0]["args"]
        assert any(each.get("args") == {"name": "allreduce.drawn"} for each in events)


def check_init_again() -> None:
    hvd.shutdown()
    assert not hvd.is_initialized()
    with raises(ValueError, "hvd.init"):
        hvd.rank()
    hvd.init()
    same(hvd.allreduce(torch.tensor(1), op=hvd.Sum), torch.tensor(hvd.size()))


def lose_a_rank() -> None:
    """Rank 1 is killed while the others wait for it."""
    hvd.allreduce(torch.ones(3))
    if hvd.rank() == 1:
        threading.Timer(0.2, signal.raise_signal, [signal.SIGKILL]).start()
        time.sleep(60)
    began = time.monotonic()
    with raises(HorovodInternalError, "rank 1 is lost"):
        hvd.allreduce(torch.ones(3), name="never")
    assert time.monotonic() - began < 10
    with raises(HorovodInternalError):
        hvd.allreduce(torch.ones(3))


def elastic() -> None:
    """Rank 0 is killed in its fifth step, after four commits; one that is started again rejoins."""
    model = net(hvd.rank())
    sgd = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    many = hvd.DistributedOptimizer(sgd, model.named_parameters())
    rows = nn.functional.one_hot(torch.arange(24) % 4, 4).float()
    sampler = hvd.elastic.ElasticSampler(rows, shuffle=True)
    state = hvd.elastic.TorchState(model, many, sampler=sampler, steps=0, seen=[])
    fresh = not Path("killed").exists()
    resets: list[int] = []
    state.register_reset_callbacks([lambda: resets.append(state.steps)])

    @hvd.elastic.run
    def train(state: Any) -> None:
        while len(state.sampler.remaining_indices) > 0:
            chosen = state.sampler.get_indices(0, 2)
            state.optimizer.zero_grad()
            state.model(rows[chosen]).square().sum().backward()
            if state.steps == 4 and hvd.rank() == 0 and fresh:
                Path("killed").touch()
                signal.raise_signal(signal.SIGKILL)
            state.optimizer.step()
            state.sampler.record_indices(chosen)
            state.seen = state.seen + [row for part in hvd.allgather_object(chosen) for row in part]
            state.sampler.unite([(0, set(state.seen))])
            state.steps += 1
            state.commit()

    train(state)
    assert state.steps == 6, (state.steps, state.seen, resets)
    assert sorted(state.seen) == list(range(24))
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])[None]
    every = hvd.allgather(weights)
    same(every, weights.expand_as(every))
    assert resets == ([4] if fresh else [])


def stall() -> None:
    """Rank 0 waits for the others, which come when its warning has been shown."""
    if hvd.rank() == 0:
        hvd.allreduce(torch.ones(3), name="awaited")
    else:
        sys.stdin.readline()
        hvd.allreduce(torch.ones(3), name="awaited")


def main(names: list[str]) -> None:
    hvd.init()
    known = {name: value for name, value in globals().items() if name.startswith("check_")}
    chosen = [globals()[name] for name in names] or list(known.values())
    for each in chosen:
        each()
    hvd.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
