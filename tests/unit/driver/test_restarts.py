"""When a job starts again, and from what."""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_stage import spec
from simulated_job import Choice, SimulatedJob

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.store import TrainingState, write_checkpoint
from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.config import Recovery
from flambeau.coordination import backoff
from flambeau.coordination.failures import Cause, Failure, of_exit
from flambeau.coordination.file_messages import AgentJoined
from flambeau.coordination.payloads import ScriptPayload
from flambeau.coordination.protocol import CODEC, RoleExited, RoleJoined, Shutdown, StartRoles
from flambeau.coordination.roles import Role
from flambeau.driver.control import controller as controlling
from flambeau.driver.control.controller import Controller
from flambeau.driver.control.phases import Phase
from flambeau.driver.control.restarts import Replacement, Restarts
from flambeau.driver.control.starting_points import StartingPoints
from flambeau.driver.outcome import Outcome
from flambeau.driver.topology import Topology
from flambeau.messaging import Client
from flambeau.observe import Event, Observer

HOST = "127.0.0.1"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.prepare({"epochs": 1}, "auto")
    return run


def save(run: RunDirectory, step: int) -> str:
    state = TrainingState(step, 0, 2, {"weight": torch.ones(8)}, {}, {})
    return write_checkpoint(run, state).name


def ignore(kind: str, **fields: Any) -> None:
    """Nobody watches."""


def lost(rank: int = 1) -> Failure:
    return of_exit(spec(rank), -9)


def when_due(restarts: Restarts, now: float) -> list[Replacement]:
    """The roles that are due, once what they start from is known."""
    for item in restarts._roles:
        item.found.result(timeout=20)
    return restarts.roles_due(now)


def test_a_role_in_a_lost_ones_place_starts_from_the_newest_checkpoint(run: RunDirectory) -> None:
    save(run, 4)
    restarts = Restarts(StartingPoints(run, resumes=True), 2, ignore)
    restarts.plan_generation(first=True)
    newest = save(run, 8)
    restarts.decide(0, "another was lost just before", now=3.0)
    restarts.decide(0, "lost", now=4.0)
    restarts.plan_role(spec(1, attempt=1), lost())
    assert when_due(restarts, 4.9) == []
    assert restarts.waiting == [spec(1, attempt=1)]
    (item,) = when_due(restarts, 5.0)
    assert (item.spec, item.point.checkpoint) == (spec(1, attempt=1), newest)
    assert restarts.waiting == when_due(restarts, 6.0) == []
    restarts.close()


def test_a_restart_is_allowed_until_all_are_used_up() -> None:
    restarts = Restarts(StartingPoints(), 1, ignore)
    assert restarts.allow(lost())
    restarts.decide(1, "lost", now=0.0)
    assert (restarts.allow(lost()), restarts.left) == (False, 0)
    restarts.take_back()
    assert (restarts.allow(lost()), restarts.left) == (True, 1)
    restarts.close()


def test_roles_that_are_lost_together_are_one_restart(run: RunDirectory) -> None:
    save(run, 4)
    told: list[str] = []
    restarts = Restarts(StartingPoints(run), 1, lambda kind, **fields: told.append(kind))
    new = [spec(rank, role, attempt=1) for role in (Role.WORKER, Role.SERVER) for rank in (0, 1)]
    for number, each in enumerate(new):
        now = 5.0 + 0.1 * number
        assert restarts.allow_role(of_exit(each, -9), now)
        restarts.replace(of_exit(each, -9), each, now)
    assert (restarts.count, told) == (1, ["restart"])
    assert [item.spec for item in when_due(restarts, 5.3)] == new
    restarts.close()


@pytest.mark.parametrize(
    ("rank", "now"), [pytest.param(1, 6.5, id="later"), pytest.param(0, 5.5, id="again")]
)
def test_a_role_that_is_lost_later_or_again_is_another_restart(rank: int, now: float) -> None:
    restarts = Restarts(StartingPoints(), 1, ignore)
    restarts.replace(lost(0), spec(0, attempt=1), 5.0)
    assert not restarts.allow_role(lost(rank), now)
    restarts.replace(lost(rank), spec(rank, attempt=1), now)
    assert restarts.count == 2
    restarts.close()


def test_a_mistake_of_the_user_is_no_part_of_a_restart() -> None:
    restarts = Restarts(StartingPoints(), 3, ignore)
    restarts.replace(lost(0), spec(0, attempt=1), 5.0)
    assert not restarts.allow_role(Failure(spec(1), Cause.USER_ERROR, "wrong"), 5.1)
    restarts.close()


def lose_all_roles(job: SimulatedJob) -> Outcome:
    """What held all roles together ends, shortly after they began."""

    def lose() -> None:
        for role in list(job.agent(0).roles):
            job.agent(0).exit(role, -9)

    job.at(Phase.RUNNING, lambda: job.after(2.0, lose))
    return job.run()


def elastic_job(saved: bool) -> SimulatedJob:
    return SimulatedJob(agents=1, servers=2, elastic=True, saved=saved, restarts=1)


def test_all_roles_lost_at_once_are_replaced_by_one_restart() -> None:
    job = elastic_job(saved=True)
    outcome = lose_all_roles(job)
    assert (outcome.ending, outcome.restarts) == ("finished", 1)
    assert [len(job.kinds(kind)) for kind in ("generation", "worker_lost")] == [1, 3]


@pytest.mark.parametrize("damaged", [False, True])
def test_all_roles_lost_at_once_with_nothing_to_restore_start_again_by_one_restart(
    damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Choice, "exist", damaged)
    job = elastic_job(saved=False)
    outcome = lose_all_roles(job)
    assert (outcome.ending, outcome.restarts) == ("finished", 1)
    assert len(job.kinds("generation")) == 2


class Watching(Observer):
    """Keeps the restarts, and does something at each."""

    def __init__(self, at_restart: Callable[[int], None] = lambda number: None) -> None:
        self.restarts: list[dict[str, Any]] = []
        self._at_restart = at_restart

    def observe(self, event: Event) -> None:
        if event.kind == "restart":
            self.restarts.append(event.fields)
            self._at_restart(len(self.restarts))

    def close(self) -> None:
        """Nothing to close."""


class Mortal(Cluster):
    """An agent in a thread, whose only worker is always killed."""

    agents = 1

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def start(self, launch: Launch) -> None:
        self._thread = threading.Thread(target=self._serve, args=(launch,))
        self._thread.start()

    coordinator_host = HOST

    def poll(self) -> list[AgentEnded]:
        return []

    def restart(self, agents: Sequence[int]) -> None:
        raise AssertionError("the agent does not end")

    def stop(self) -> None:
        assert self._thread is not None
        self._thread.join(timeout=10)

    def _serve(self, launch: Launch) -> None:
        agent: Client[Any] = Client(CODEC, launch.secret, launch.coordinator)
        agent.send(AgentJoined(0, HOST, "here", [0]))
        while True:
            received = agent.receive(20)
            assert received is not None
            if isinstance(received[0], StartRoles):
                (worker,) = received[0].roles
                agent.send(RoleJoined(worker, 1))
                agent.send(RoleExited(worker, -9))
            elif isinstance(received[0], Shutdown):
                break
        agent.close()


def run_mortal(max_restarts: int, observer: Observer) -> Outcome:
    recovery = Recovery(max_restarts=max_restarts)
    controller = Controller(Topology(1), Mortal(), observer, recovery, graceful=True)
    return controller.run(
        Launch(controller.address, controller.secret, "", ScriptPayload("none.py"))
    )


def test_restarts_follow_each_other_more_and_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controlling, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(backoff, "FIRST_SECONDS", 0.01)
    watching = Watching()
    outcome = run_mortal(3, watching)
    assert outcome.failure is not None
    assert outcome.restarts == 3
    assert [fields.get("delay") for fields in watching.restarts] == [None, 0.01, 0.02]
    assert [fields["generation"] for fields in watching.restarts] == [1, 2, 3]


def test_a_job_that_waits_to_restart_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controlling, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(backoff, "LIMIT_SECONDS", 3600.0)
    monkeypatch.setattr(backoff, "FIRST_SECONDS", 3600.0)

    def interrupt(number: int) -> None:
        if number == 2:
            os.kill(os.getpid(), signal.SIGINT)

    outcome = run_mortal(5, Watching(interrupt))
    assert outcome.interrupted is signal.SIGINT
    assert outcome.restarts == 2
