"""Roles that are silent or stuck: their stacks are printed before they fail."""

from fake_stage import spec

from flambeau.config import Recovery
from flambeau.coordination.activity import Doing
from flambeau.coordination.failures import Cause
from flambeau.coordination.membership import Membership
from flambeau.coordination.protocol import Heartbeat, RoleJoined
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.driver.control.stall_watch import STACK_SECONDS, StallWatch

ROLES = [spec(0), spec(1), spec(0, Role.SERVER)]


class Watched:
    """Two workers and a server; the workers have made a step by second 0."""

    def __init__(self) -> None:
        self.shown: list[RoleSpec] = []
        recovery = Recovery(heartbeat_timeout=5.0, progress_timeout=10.0)
        self.vigil = StallWatch(recovery, lambda role, reason: self.shown.append(role), 0.0)
        self.members = Membership(ROLES, 0.0)
        for role in ROLES:
            self.members.joined(b"peer", RoleJoined(role, 1), 0.0)

    def beat(self, now: float, *roles: RoleSpec, marks: int, doing: Doing = Doing.WORKING) -> None:
        for role in roles:
            self.members.seen(role, now)
            self.vigil.beat(Heartbeat(role, marks, doing), now)

    def causes(self, now: float) -> list[tuple[RoleSpec, Cause]]:
        failures = self.vigil.failures(self.members, now)
        return [(failure.spec, failure.cause) for failure in failures]


def test_a_silent_role_fails_after_there_was_time_for_its_stacks() -> None:
    watched = Watched()
    watched.beat(6.0, spec(0), spec(0, Role.SERVER), marks=1)
    assert watched.causes(6.0) == []
    assert watched.shown == [spec(1)]
    assert watched.causes(6.0 + STACK_SECONDS) == [(spec(1), Cause.SILENT)]
    assert watched.shown == [spec(1)]


def test_a_role_that_answers_again_does_not_fail() -> None:
    watched = Watched()
    watched.beat(6.0, spec(0), spec(0, Role.SERVER), marks=1)
    assert watched.causes(6.0) == []
    watched.beat(7.0, *ROLES, marks=1)
    assert watched.causes(6.0 + STACK_SECONDS) == []


def stall(watched: Watched, doing: Doing) -> float:
    """Worker 0 waits; what worker 1 does is given. When it lasts too long is returned."""
    for now in range(12):
        watched.beat(now, spec(0), marks=2, doing=Doing.WAITING)
        watched.beat(now, spec(1), marks=2, doing=doing)
        watched.beat(now, spec(0, Role.SERVER), marks=0)
    return 11.0


def test_a_stuck_worker_fails_and_only_its_own_stacks_are_shown() -> None:
    watched = Watched()
    now = stall(watched, Doing.WORKING)
    assert watched.causes(now) == []
    assert watched.shown == [spec(1)]
    assert watched.causes(now + STACK_SECONDS) == [(spec(1), Cause.STUCK)]


def test_if_all_wait_the_stacks_of_all_are_shown_once() -> None:
    watched = Watched()
    now = stall(watched, Doing.WAITING)
    assert watched.causes(now) == []
    assert watched.shown == ROLES
    expected = [(spec(0), Cause.DEADLOCK), (spec(1), Cause.DEADLOCK)]
    assert watched.causes(now + STACK_SECONDS) == expected
    assert watched.shown == ROLES
