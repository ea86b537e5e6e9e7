import pytest
import torch


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    """Models of every test begin alike."""
    torch.manual_seed(0)
