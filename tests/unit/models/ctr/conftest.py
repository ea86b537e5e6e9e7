from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    """Models of every test begin alike."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """These models are so small that threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
