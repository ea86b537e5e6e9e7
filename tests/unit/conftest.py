"""Generated cases are the same in every run, and a busy machine makes none of them fail."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("unit", deadline=None, derandomize=True, database=None)
settings.load_profile("unit")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """All that is computed here is so small that threads would only wait for each other."""
    torch.set_num_threads(1)
