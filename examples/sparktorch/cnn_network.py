"""The network of `simple_cnn.py`, in a file of its own so that it can be imported anywhere."""

from torch import Tensor, nn


class Net(nn.Module):
    """Two convolutions over rows of 64 pixels, which are images of 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classes = nn.Linear(64, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the logits [rows, 10]."""
        logits: Tensor = self.classes(self.features(pixels.view(-1, 1, 8, 8)).flatten(1))
        return logits
