import itertools
import signal

import pytest

from flambeau.coordination.failures import (
    Cause,
    Failure,
    Verdict,
    decide,
    of_exception,
    of_exit,
    of_silence,
    root_cause,
)
from flambeau.coordination.protocol import RoleFailed
from flambeau.coordination.roles import Role, RoleSpec

UNNAMED = signal.SIGRTMIN + 3
SPEC = RoleSpec(Role.WORKER, rank=3, world=4, local_rank=3, local_world=4, node=0, generation=0)


def failure(cause: Cause) -> Failure:
    return Failure(SPEC, cause, cause.name)


def raised(*, user_error: bool = False, lost_peer: bool = False) -> Cause:
    return of_exception(RoleFailed(SPEC, "E", "text", "trace", "all", user_error, lost_peer)).cause


@pytest.mark.parametrize(("likelier", "other"), list(itertools.combinations(Cause, 2)))
def test_the_likelier_cause_is_shown_in_whatever_order_they_came(
    likelier: Cause, other: Cause
) -> None:
    both = [failure(likelier), failure(other)]
    assert root_cause(both).cause is root_cause(both[::-1]).cause is likelier


def test_of_two_alike_the_first_is_shown() -> None:
    first = Failure(SPEC, Cause.DIED, "first")
    assert root_cause([first, failure(Cause.DIED)]) is first


def test_an_exception_is_the_users_or_a_lost_peers_or_our_own() -> None:
    assert raised() is Cause.EXCEPTION
    assert raised(user_error=True) is Cause.USER_ERROR
    assert raised(user_error=True, lost_peer=True) is Cause.LOST_PEER


@pytest.mark.parametrize(
    ("code", "text", "status"),
    [
        (-9, "worker 3 was killed by SIGKILL", 137),
        (-11, "worker 3 was killed by SIGSEGV", 139),
        (-UNNAMED, f"worker 3 was killed by signal {UNNAMED}", 128 + UNNAMED),
        (7, "worker 3 exited with code 7", 7),
    ],
)
def test_an_exit_says_who_and_how(code: int, text: str, status: int) -> None:
    assert of_exit(SPEC, code) == Failure(SPEC, Cause.DIED, text, exit_code=status)


def test_a_lack_of_memory_is_named_only_where_the_kernel_reported_one() -> None:
    text = "worker 3 was killed by SIGKILL: the machine or its container is out of memory"
    assert of_exit(SPEC, -9, out_of_memory=True).message == text


@pytest.mark.parametrize(("trace", "text"), [("trace", "KeyError: 'x'"), ("", "'x'")])
def test_an_exception_with_a_traceback_is_named_by_its_type(trace: str, text: str) -> None:
    message = RoleFailed(SPEC, "KeyError", "'x'", trace, "all", False, False)
    assert of_exception(message).message == text


def test_silence_says_for_how_long() -> None:
    assert "has not answered for 21 seconds" in of_silence(SPEC, 21.4).message


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.USER_ERROR])
def test_it_is_tried_again_as_often_as_allowed(cause: Cause) -> None:
    assert decide(failure(cause), restarts=1, max_restarts=2) is Verdict.RESTART
    assert decide(failure(cause), restarts=2, max_restarts=2) is Verdict.FAIL


def test_the_users_mistake_is_not_tried_again() -> None:
    assert decide(failure(Cause.USER_ERROR), restarts=0, max_restarts=5) is Verdict.FAIL
