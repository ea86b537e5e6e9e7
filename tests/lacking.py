"""What a machine may lack for some tests."""

import os
from typing import NoReturn

import pytest


def missing(what: str, remedy: str) -> NoReturn:
    """Skip the test, or fail it where all tests have to run."""
    message = f"{what}: {remedy}"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
