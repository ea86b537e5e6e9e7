"""What a role reports of an exception, and whether another attempt could help."""

import pytest

from flambeau.clusters.child_process import ChildSpec
from flambeau.coordination.payloads import ScriptPayload, Site
from flambeau.coordination.protocol import RoleFailed
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.errors import CheckpointError, DataError
from flambeau.roles.main import _failure


def failed(role: Role, error: BaseException) -> RoleFailed:
    spec = RoleSpec(role, 0, 1, 0, 1, 0, 0)
    return _failure(ChildSpec("", b"", spec, ScriptPayload(""), Site(), [], []), error)


@pytest.mark.parametrize("error", [CheckpointError("it is damaged"), DataError("row 3")])
def test_errors_of_a_predictor_keep_type_and_message_and_are_final(error: Exception) -> None:
    found = failed(Role.PREDICTOR, error)
    assert (found.error, found.message) == (type(error).__name__, str(error))
    assert found.traceback == ""
    assert found.user_error


def test_an_exception_of_a_predictor_is_final_and_that_of_a_worker_is_not() -> None:
    assert failed(Role.PREDICTOR, RuntimeError("of the model")).user_error
    assert not failed(Role.WORKER, RuntimeError("of the model")).user_error
    assert not failed(Role.WORKER, CheckpointError("it is being written")).user_error


def test_a_lost_connection_of_a_predictor_is_worth_another_attempt() -> None:
    assert failed(Role.PREDICTOR, OSError("Connection reset by peer")).lost_peer
