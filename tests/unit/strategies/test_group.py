import torch

from flambeau.strategies.group import Solo


def test_one_worker_alone_is_the_first_of_one() -> None:
    group = Solo()
    assert (group.rank, group.size, group.first) == (0, 1, True)


def test_alone_every_collective_gives_back_ones_own() -> None:
    group, tensor = Solo(), torch.tensor([1.0, 2.0])
    assert group.sum(tensor) is tensor
    assert group.broadcast(tensor) is tensor
    assert group.gather(b"mine") == [b"mine"]
