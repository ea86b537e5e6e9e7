"""What a role reports when it fails, and whether a restart may help."""

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from flambeau.coordination.roles import Role, RoleSpec
from flambeau.errors import CheckpointError, DataError
from flambeau.roles.main import _failure


def chained(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


FULL = OSError(errno.ENOSPC, "No space left on device")
NOT_SAVED = CheckpointError("the checkpoint of step 2 was not written")


@pytest.mark.parametrize(
    ("error", "hopeless"),
    [
        (chained(NOT_SAVED, FULL), True),
        (FULL, True),
        (DataError("row 7 is odd"), True),
        (CheckpointError("step-1 is corrupt"), False),
        (OSError(errno.EIO, "broken"), False),
    ],
)
def test_a_full_disk_is_not_retried_whoever_reports_it(error: Exception, hopeless: bool) -> None:
    spec = RoleSpec(Role.WORKER, 0, 1, 0, 1, 0, 0)
    child: Any = SimpleNamespace(spec=spec)
    assert _failure(child, error).user_error is hopeless
