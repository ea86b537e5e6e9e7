"""Workers that are alive and make no progress."""

from flambeau.coordination.activity import Doing
from flambeau.coordination.failures import Cause, of_stall
from flambeau.coordination.protocol import Heartbeat
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.coordination.stalls import Stall, Stalls

TIMEOUT = 10.0


def role(rank: int, kind: Role = Role.WORKER) -> RoleSpec:
    return RoleSpec(kind, rank, 2, rank, 2, 0, 0)


ZERO, ONE, SERVER = role(0), role(1), role(0, Role.SERVER)
WORKERS = [ZERO, ONE]


def watched(timeout: float | None = TIMEOUT) -> Stalls:
    """Both workers have made two steps by second 0."""
    stalls = Stalls(timeout, now=0.0)
    for spec in WORKERS:
        stalls.beat(Heartbeat(spec, 2), now=0.0)
    return stalls


def test_a_worker_that_works_without_a_step_is_stuck_and_not_one_that_waits_for_it() -> None:
    stalls = watched()
    for now in range(1, 11):
        stalls.beat(Heartbeat(ZERO, 2, Doing.WAITING), now)
        stalls.beat(Heartbeat(ONE, 2), now)
        assert stalls.find(WORKERS, now) is None
    assert stalls.find(WORKERS, 10.1) == Stall((ONE,), waiting=(ZERO,))


def test_steps_and_batches_of_an_evaluation_are_progress() -> None:
    stalls = watched()
    for now in range(0, 60, 6):
        for spec in WORKERS:
            stalls.beat(Heartbeat(spec, 3 + now), now)
        assert stalls.find(WORKERS, now) is None


def test_the_first_step_may_take_any_time() -> None:
    stalls = Stalls(TIMEOUT, now=0.0)
    for now in (0.0, 50.0, 100.0):
        stalls.beat(Heartbeat(ZERO, 0), now)
        stalls.beat(Heartbeat(ONE, 0, Doing.WAITING), now)
        assert stalls.find(WORKERS, now) is None


def test_a_worker_that_has_waited_long_is_given_time_for_its_own_step() -> None:
    stalls = watched()
    for now in range(1, 30):
        stalls.beat(Heartbeat(ZERO, 2 + now), now)
        stalls.beat(Heartbeat(ONE, 2, Doing.WAITING), now)
    stalls.beat(Heartbeat(ONE, 2), 30.0)
    assert stalls.find(WORKERS, 30.0) is None


def test_workers_that_all_wait_are_stuck_together_and_the_slowest_is_behind() -> None:
    stalls = watched()
    stalls.beat(Heartbeat(ZERO, 3, Doing.WAITING), 1.0)
    stalls.beat(Heartbeat(ONE, 2, Doing.WAITING), 1.0)
    assert stalls.find(WORKERS, 11.0) is None
    assert stalls.find(WORKERS, 11.1) == Stall((ONE,), together=True)


def test_nobody_is_blamed_while_a_checkpoint_is_written_or_read() -> None:
    stalls = watched()
    for now in range(1, 40):
        stalls.beat(Heartbeat(ZERO, 2, Doing.WAITING), now)
        stalls.beat(Heartbeat(ONE, 2, Doing.WAITING), now)
        stalls.beat(Heartbeat(SERVER, 0, Doing.STORING), now)
        assert stalls.find(WORKERS, now) is None
    stalls.beat(Heartbeat(SERVER, 0), 40.0)
    assert stalls.find(WORKERS, 45.0) is None


def test_a_worker_that_is_done_is_not_watched() -> None:
    stalls = watched()
    stalls.beat(Heartbeat(ZERO, 9), 10.0)
    assert stalls.find([ZERO], 15.0) is None


def test_without_a_timeout_nobody_is_stuck() -> None:
    assert watched(None).find(WORKERS, 1e6) is None


def test_the_failure_names_who_is_behind_and_who_waits() -> None:
    (failure,) = of_stall(Stall((ONE,), waiting=(ZERO,)), TIMEOUT)
    assert (failure.spec, failure.cause) == (ONE, Cause.STUCK)
    assert failure.message == (
        "worker 1 has made no step for 10 seconds (recovery.progress_timeout); waiting: worker 0"
    )


def test_the_failure_of_all_says_so() -> None:
    (failure,) = of_stall(Stall((ONE,), together=True), TIMEOUT)
    assert failure.cause is Cause.DEADLOCK
    assert failure.message.endswith("and neither has any other worker")
