"""Every phase of a job crossed with everything that can happen in it, by simulation."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from simulated_job import FOR_EVER, SimulatedAgent, SimulatedJob

from flambeau.clusters.base import AgentEnded
from flambeau.coordination.file_messages import AgentBeat, FilePart, Spooled
from flambeau.coordination.protocol import (
    Heartbeat,
    RoleDone,
    RoleExited,
    RoleFailed,
    RoleJoined,
)
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.driver.control.phases import TABLE, Action, Phase, Trigger, move
from flambeau.driver.outcome import Outcome
from flambeau.errors import ConfigError

LIVE = [phase for phase in Phase if phase is not Phase.OVER]


def in_phase(phase: Phase, *what: Callable[[], None], job: SimulatedJob) -> Outcome:
    """Run a job in which something happens in a phase."""
    if phase in (Phase.SETTLING, Phase.ENDING):
        job.at(Phase.RUNNING, lambda: job.exit_role(0))
    if phase is Phase.GATHERING:
        # All the others have joined by then.
        job.join_seconds[0] = 40.0
        for number, each in enumerate(what):
            job.after(10.0 + number, each)
    elif phase is Phase.RUNNING:
        # All roles have joined by then, and work.
        job.at(phase, *[partial(job.after, 3.0 + n, each) for n, each in enumerate(what)])
    else:
        job.at(phase, *what)
    outcome = job.run()
    assert phase in job.seen
    assert_nothing_left(job)
    return outcome


def assert_nothing_left(job: SimulatedJob) -> None:
    assert job.cluster.stopped
    assert not job.left
    assert job.now < FOR_EVER


def ending(outcome: Outcome) -> str:
    return outcome.ending


# The table


def test_every_phase_can_come_to_its_end() -> None:
    leads = {(phase, move.to) for (phase, _), move in TABLE.items()}
    for phase in LIVE:
        reached, new = {phase}, {phase}
        while new:
            new = {to for (at, to) in leads if at in new} - reached
            reached |= new
        assert Phase.OVER in reached


def test_nothing_leads_out_of_the_end() -> None:
    assert all(move(Phase.OVER, trigger).to is Phase.OVER for trigger in Trigger)


def test_whoever_insists_on_an_end_gets_it_in_every_phase() -> None:
    for phase in LIVE:
        once = move(phase, Trigger.END).to
        assert once in (Phase.ENDING, Phase.OVER)
        assert move(once, Trigger.END).to is Phase.OVER


def test_every_trigger_and_every_action_is_of_use() -> None:
    assert {trigger for _, trigger in TABLE} == set(Trigger)
    assert {move.action for move in TABLE.values()} == set(Action)


# A job without accidents


@pytest.mark.parametrize("servers", [0, 2])
def test_an_undisturbed_job_finishes(servers: int) -> None:
    job = SimulatedJob(servers=servers)
    outcome = job.run()
    assert (ending(outcome), outcome.restarts) == ("finished", 0)
    assert job.seen == [Phase.GATHERING, Phase.PREPARING, Phase.RUNNING]
    assert_nothing_left(job)


# Agents that are lost

ELASTIC = [True, False]
#: An elastic job does not come to all phases by a lost worker: it replaces it.
LOSSES = [
    (phase, single, elastic)
    for phase, single, elastic in itertools.product(LIVE, [True, False], ELASTIC)
    if not (elastic and phase in (Phase.SETTLING, Phase.ENDING))
]


@pytest.mark.parametrize("how", ["killed", "silent", "replaced without a word"])
@pytest.mark.parametrize(("phase", "single", "elastic"), LOSSES)
def test_a_lost_agent_is_replaced(phase: Phase, how: str, single: bool, elastic: bool) -> None:
    job = SimulatedJob(single=single, elastic=elastic, restarts=3)
    lose = {
        "killed": job.kill,
        "silent": job.freeze,
        "replaced without a word": job.rejoin,
    }[how]
    outcome = in_phase(phase, lambda: lose(1), job=job)
    assert ending(outcome) == "finished"
    continues = single and elastic and phase is Phase.RUNNING
    # In this phase it is noticed only when roles should have started.
    too_late = phase is Phase.PREPARING and how != "killed"
    ended = phase not in (Phase.GATHERING, Phase.PREPARING) and not continues
    assert len(job.kinds("generation")) == 1 + (too_late or ended)
    if how != "replaced without a word":
        assert job.cluster.restarted == [[1] if single else [0, 1]]


@pytest.mark.parametrize("phase", LIVE)
@pytest.mark.parametrize("how", ["killed", "silent"])
def test_without_restarts_a_lost_agent_fails_the_job(phase: Phase, how: str) -> None:
    job = SimulatedJob(restarts=0)
    outcome = in_phase(phase, lambda: (job.kill if how == "killed" else job.freeze)(1), job=job)
    assert ending(outcome) == "failed"
    assert outcome.failure is not None
    if phase not in (Phase.SETTLING, Phase.ENDING):
        assert outcome.failure.message.startswith("agent 1 on host-1 ended before its time: ")


def test_the_others_are_ended_when_one_is_lost_for_good() -> None:
    job = SimulatedJob(agents=3, restarts=0)
    outcome = in_phase(Phase.RUNNING, lambda: job.kill(1), job=job)
    assert ending(outcome) == "failed"
    assert Phase.ENDING in job.seen


def test_a_lost_agent_that_wakes_up_ends_itself() -> None:
    job = SimulatedJob(elastic=True)
    frozen = []

    def freeze() -> None:
        frozen.append(job.agent(1))
        job.freeze(1)
        # It wakes when another one has long taken its place; what was sent to it waits for it.
        job.after(60.0, lambda: setattr(frozen[0], "frozen", False))

    outcome = in_phase(Phase.RUNNING, freeze, job=job)
    assert (ending(outcome), outcome.restarts) == ("finished", 1)


def test_several_agents_lost_at_once_are_one_restart() -> None:
    job = SimulatedJob(agents=3, restarts=1)
    outcome = in_phase(Phase.RUNNING, lambda: (job.kill(1), job.kill(2)), job=job)  # type: ignore[arg-type, return-value]
    assert (ending(outcome), outcome.restarts) == ("finished", 1)
    assert job.cluster.restarted == [[1, 2]]


def test_while_the_others_train_only_the_lost_roles_start_again() -> None:
    job = SimulatedJob(agents=3, servers=3, elastic=True)
    outcome = in_phase(Phase.RUNNING, lambda: job.kill(1), job=job)
    assert (ending(outcome), outcome.restarts) == ("finished", 1)
    assert [len(job.kinds(kind)) for kind in ("generation", "worker_lost")] == [1, 2]
    lost = {(fields["role"], fields["rank"]) for fields in job.kinds("worker_lost")}
    assert lost == {("worker", 1), ("server", 1)}
    assert all(fields["host"] == "host-1" for fields in job.kinds("worker_lost"))


def test_an_agent_that_comes_back_on_another_machine_has_a_free_local_rank_there() -> None:
    job = SimulatedJob(agents=3, elastic=True)
    job.hosts = {0: "one", 1: "one", 2: "two"}
    places = []

    def move() -> None:
        job.hosts[0] = "two"
        job.kill(0)
        job.after(8.0, lambda: places.extend(job.agent(0).roles))

    assert ending(in_phase(Phase.RUNNING, move, job=job)) == "finished"
    assert [(spec.local_rank, spec.attempt) for spec in places] == [(1, 1)]


def test_a_lost_server_that_nothing_can_restore_starts_all_again() -> None:
    job = SimulatedJob(agents=3, servers=3, elastic=True, saved=False)
    outcome = in_phase(Phase.RUNNING, lambda: job.kill(1), job=job)
    assert (ending(outcome), outcome.restarts) == ("finished", 1)
    assert len(job.kinds("generation")) == 2


@pytest.mark.parametrize("elastic", ELASTIC)
def test_an_agent_that_nothing_replaces_fails_the_job(elastic: bool) -> None:
    job = SimulatedJob(elastic=elastic)
    job.cluster.replaces = False
    if elastic:
        outcome = in_phase(Phase.RUNNING, lambda: job.kill(1), job=job)
        assert outcome.failure is not None
        reason = "nothing has replaced it: 1 agent of 2 (1) did not join within 120 s"
        text = f"agent 1 on host-1 ended before its time: {reason}"
        assert text in outcome.failure.message
    else:
        with pytest.raises(ConfigError, match=r"1 agent of 2 \(1\) did not join within 120 s"):
            in_phase(Phase.RUNNING, lambda: job.kill(1), job=job)
        assert_nothing_left(job)


def test_an_agent_that_is_lost_after_its_work_is_not_missed() -> None:
    job = SimulatedJob(agents=2, restarts=0)

    def finish_first() -> None:
        agent = job.agent(1)
        for spec in list(agent.roles):
            agent.finish(spec)
        job.after(2.0, lambda: job.kill(1))

    job.at(Phase.RUNNING, lambda: job.after(3.0, finish_first))
    outcome = job.run()
    assert (ending(outcome), outcome.restarts) == ("finished", 0)
    assert_nothing_left(job)


def other_rows(job: SimulatedJob) -> Callable[[SimulatedAgent], Spooled]:
    """What each agent brings: as many rows as the one before, but not the same."""
    return lambda agent: Spooled(agent.number, {"train": [5]}, 10, {}, {"train": len(job.agents)})


@pytest.mark.parametrize("same", [True, False])
def test_an_agent_that_brings_other_rows_starts_all_again(same: bool) -> None:
    job = SimulatedJob(elastic=True, rows=True)
    if not same:
        job.rows_of = other_rows(job)  # type: ignore[method-assign]
    outcome = in_phase(Phase.RUNNING, lambda: job.kill(1), job=job)
    assert (ending(outcome), outcome.restarts) == ("finished", 1)
    assert len(job.kinds("generation")) == (1 if same else 2)
    assert len(job.kinds("spooled")) == (1 if same else 2)


@pytest.mark.parametrize("same", [True, False])
def test_rows_of_agents_that_all_come_again_are_recognised(same: bool) -> None:
    job = SimulatedJob(single=False, rows=True)
    if not same:
        job.rows_of = other_rows(job)  # type: ignore[method-assign]
    in_phase(Phase.RUNNING, lambda: job.kill(1), job=job)
    assert len(job.kinds("spooled")) == (1 if same else 2)


# Roles that fail


@pytest.mark.parametrize("restarts", [0, 1])
@pytest.mark.parametrize("elastic", ELASTIC)
def test_a_role_that_exits(restarts: int, elastic: bool) -> None:
    job = SimulatedJob(elastic=elastic, restarts=restarts)
    outcome = in_phase(Phase.RUNNING, lambda: job.exit_role(1), job=job)
    assert ending(outcome) == ("finished" if restarts else "failed")
    assert outcome.restarts == restarts
    assert len(job.kinds("generation")) == 1 + (restarts and not elastic)


def test_agents_that_cannot_end_their_roles_are_lost() -> None:
    job = SimulatedJob()

    def hang() -> None:
        job.agent(1).stuck = True
        job.exit_role(0)

    outcome = in_phase(Phase.RUNNING, hang, job=job)
    assert (ending(outcome), outcome.restarts) == ("finished", 1)
    assert job.cluster.restarted == [[1]]


def test_without_restarts_a_job_that_cannot_end_fails_with_the_agent() -> None:
    job = SimulatedJob(restarts=0)

    def hang() -> None:
        job.agent(1).stuck = True
        job.exit_role(0)

    outcome = in_phase(Phase.RUNNING, hang, job=job)
    assert outcome.failure is not None
    assert "have not ended within 30 s" in outcome.failure.message


def test_agents_that_never_come_are_an_error() -> None:
    job = SimulatedJob()
    job.cluster.start = lambda launch: job.launch(0)  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match=r"1 agent of 2 \(1\) did not join within 120 s.*127"):
        job.run()
    assert_nothing_left(job)


# Ctrl-C


@pytest.mark.parametrize("phase", LIVE)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("graceful", [True, False])
def test_ctrl_c(phase: Phase, times: int, graceful: bool) -> None:
    job = SimulatedJob(graceful=graceful)
    outcome = in_phase(phase, *[job.interrupt] * times, job=job)
    assert outcome.interrupted is not None
    assert outcome.failure is None
    assert len(job.kinds("generation")) <= 1


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_agents_do_not_end_their_roles(times: int) -> None:
    job = SimulatedJob()

    def hang() -> None:
        job.agent(1).stuck = True
        job.exit_role(0)

    job.at(Phase.RUNNING, hang)
    job.at(Phase.ENDING, *[job.interrupt] * times)
    begun = job.now
    outcome = job.run()
    assert outcome.interrupted is not None
    assert_nothing_left(job)
    if times == 2:
        assert job.now - begun < 25.0  # at once


@pytest.mark.parametrize("phase", LIVE)
def test_ctrl_c_when_an_agent_is_lost(phase: Phase) -> None:
    job = SimulatedJob(restarts=3)
    outcome = in_phase(phase, job.interrupt, lambda: job.freeze(1), job=job)
    assert outcome.interrupted is not None


# Messages that come too late


def old(kind: str) -> Any:
    spec = RoleSpec(Role.WORKER, 0, 2, 0, 1, 0, generation=-1)
    return {
        "joined": RoleJoined(spec, 7),
        "done": RoleDone(spec, "finished", {}),
        "exited": RoleExited(spec, 1),
        "failed": RoleFailed(spec, "E", "text", "", "", True, False),
        "beat": AgentBeat(1, "an earlier incarnation"),
        "file": FilePart("checkpoints/step-00000001/x", 0),
    }[kind]


@pytest.mark.parametrize("phase", LIVE)
@pytest.mark.parametrize("kind", ["joined", "done", "exited", "failed", "beat", "file"])
def test_messages_of_an_old_generation_change_nothing(phase: Phase, kind: str) -> None:
    job = SimulatedJob(restarts=1)
    outcome = in_phase(phase, lambda: job.say(old(kind)), job=job)
    assert ending(outcome) == "finished"
    assert outcome.restarts == (phase in (Phase.SETTLING, Phase.ENDING))


def test_time_in_which_the_driver_itself_was_stopped_does_not_count() -> None:
    job = SimulatedJob(restarts=0)
    outcome = in_phase(Phase.RUNNING, lambda: setattr(job, "now", job.now + 60.0), job=job)
    assert ending(outcome) == "finished"


def test_the_documentation_shows_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "architecture" / "life-of-a-job.md"
    rows = [
        f"| {phase.name} | {trigger.name} | {action.value} | {to.name} |"
        for (phase, trigger), (action, to) in TABLE.items()
    ]
    header = "| phase | trigger | what is done | next phase |\n|---|---|---|---|\n"
    assert header + "\n".join(rows) + "\n\n" in page.read_text(encoding="utf-8")


def test_signs_of_life_do_not_have_everything_looked_into() -> None:
    job = SimulatedJob()
    polls: list[float] = []
    poll = job.cluster.poll

    def note() -> list[AgentEnded]:
        polls.append(job.now)
        return poll()

    def beat_often() -> None:
        spec = next(iter(job.agent(0).roles))
        for _ in range(1000):
            job.say(Heartbeat(spec))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job.cluster, "poll", note)
        in_phase(Phase.RUNNING, beat_often, job=job)
    assert len(polls) < 500  # ten in each of the 14 simulated seconds, and for some messages one


def test_the_end_of_the_last_role_ends_the_job_without_a_delay() -> None:
    job = SimulatedJob(agents=1)
    exits: list[float] = []
    leave = SimulatedAgent.exit

    def note(agent: SimulatedAgent, spec: RoleSpec, code: int) -> None:
        exits.append(job.now)
        leave(agent, spec, code)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedAgent, "exit", note)
        job.run()
    assert exits == [job.now]
