"""Delays before restarts."""

from flambeau.coordination.backoff import LIMIT_SECONDS, RECOVERED_SECONDS, Backoff


def test_the_first_restart_is_immediate_and_each_later_one_waits_twice_as_long() -> None:
    backoff, now, delays = Backoff(), 100.0, []
    for _ in range(9):
        delays.append(backoff.next(now))
        now += delays[-1] + 1.0
    assert delays == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, LIMIT_SECONDS, LIMIT_SECONDS]


def test_a_job_that_ran_well_after_a_restart_restarts_at_once() -> None:
    backoff = Backoff()
    backoff.next(0.0)
    assert backoff.next(1.0) == 1.0
    assert backoff.next(2.0 + RECOVERED_SECONDS + 1.0) == 0.0
