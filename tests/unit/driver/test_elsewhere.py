"""What a client is told about a job that was driven elsewhere."""

from pathlib import Path

import pytest

from flambeau.driver.elsewhere import retold
from flambeau.errors import FlambeauError, RunDirectoryError

PLACES = {"/root/.flambeau/ray/5f/clicks": "runs/clicks"}


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RunDirectoryError])
def test_an_error_names_folders_as_the_client_knows_them(kind: type[BaseException]) -> None:
    error = retold(kind("stopped; run_dir='/root/.flambeau/ray/5f/clicks' goes on"), PLACES)
    assert isinstance(error, kind)
    assert str(error) == "stopped; run_dir='runs/clicks' goes on"


def test_what_is_not_text_in_an_error_stays() -> None:
    parts = (7, Path("/root/.flambeau/ray/5f/clicks"), None)
    assert retold(FlambeauError(*parts), PLACES).args == parts
