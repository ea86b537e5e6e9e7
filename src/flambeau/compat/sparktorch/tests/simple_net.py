"""Small networks for rows of ten numbers, with the names that SparkTorch's tests use."""

from torch import nn


class NetworkWithParameters(nn.Sequential):
    """Network with one output and `param` hidden units."""

    def __init__(self, param: int) -> None:
        super().__init__(nn.Linear(10, param), nn.ReLU(), nn.Linear(param, 1))


class Net(NetworkWithParameters):
    """Network with one output and 20 hidden units."""

    def __init__(self) -> None:
        super().__init__(20)


class AutoEncoder(nn.Sequential):
    """Auto-encoder of ten numbers, with two hidden units."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(10, 2), nn.ReLU(), nn.Linear(2, 10))


class ClassificationNet(nn.Sequential):
    """Network that returns the logarithms of the probabilities of two classes."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2), nn.LogSoftmax(dim=1))
