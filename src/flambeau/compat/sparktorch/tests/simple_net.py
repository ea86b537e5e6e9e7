"""Small networks for rows of ten numbers, under the names that SparkTorch gave to such."""

from torch import nn


class NetworkWithParameters(nn.Sequential):
    """One number out, with `param` units between."""

    def __init__(self, param: int) -> None:
        super().__init__(nn.Linear(10, param), nn.ReLU(), nn.Linear(param, 1))


class Net(NetworkWithParameters):
    """One number out."""

    def __init__(self) -> None:
        super().__init__(20)


class AutoEncoder(nn.Sequential):
    """Ten numbers out, through two."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(10, 2), nn.ReLU(), nn.Linear(2, 10))


class ClassificationNet(nn.Sequential):
    """The logarithms of the probabilities of two classes."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2), nn.LogSoftmax(dim=1))
