"""When agents are started again, and which of them an ending job waits for."""

import itertools
from collections.abc import Callable, Sequence

import pytest
from simulated_job import JOIN_SECONDS, SimulatedJob

from flambeau.clusters.base import AgentEnded, Launch
from flambeau.coordination.roles import Role
from flambeau.driver.control.controller import END_SECONDS
from flambeau.driver.control.phases import Phase
from flambeau.errors import ConfigError


def note_restarts(job: SimulatedJob, then: Callable[[], None]) -> list[float]:
    """Return the times at which the cluster is asked for others, filled while the job runs."""
    times: list[float] = []
    restart = job.cluster.restart

    def note(agents: Sequence[int]) -> None:
        times.append(job.now)
        restart(agents)
        then()

    job.cluster.restart = note  # type: ignore[method-assign]
    return times


# The delay


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("elastic", [True, False])
def test_agents_are_started_again_when_the_announced_delay_is_over(
    single: bool, elastic: bool
) -> None:
    job = SimulatedJob(single=single, elastic=elastic, restarts=6)
    times = note_restarts(job, lambda: job.kill(1))
    job.at(Phase.RUNNING, lambda: job.kill(1))
    outcome = job.run()
    assert (outcome.ending, outcome.restarts) == ("failed", 6)
    delays = [fields.get("delay", 0.0) for fields in job.kinds("restart")]
    assert delays == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0]
    # One that is lost once more while the generation ends is part of the first restart.
    waited = [after - before for before, after in itertools.pairwise(times)][-5:]
    assert all(wait >= delay for wait, delay in zip(waited, delays[1:], strict=True)), waited


def test_agents_that_come_while_all_are_to_be_started_again_are_sent_away() -> None:
    job = SimulatedJob(single=False, restarts=3)
    stragglers = []

    def lose_again() -> None:
        if len(times) == 1:
            job.kill(1)
            # An agent of the lost attempt that was slow to start.
            job.launch(0)
            stragglers.append(job.agent(0))

    times = note_restarts(job, lose_again)
    job.join_seconds[0] = 0.5
    job.at(Phase.RUNNING, lambda: job.kill(1))
    outcome = job.run()
    assert (outcome.ending, outcome.restarts, len(times)) == ("finished", 2, 2)
    assert not stragglers[0].alive


def test_the_end_of_agents_that_wait_for_their_restart_is_no_other_loss() -> None:
    job = SimulatedJob(single=False, restarts=3)

    def lose_again() -> None:
        if len(times) == 1:
            job.kill(1)
            # The stage of an engine ends when its last task does.
            stage = AgentEnded("the stage has ended")
            job.after(0.5, lambda: job.cluster.ended_agents.append(stage))

    times = note_restarts(job, lose_again)
    job.at(Phase.RUNNING, lambda: job.kill(1))
    outcome = job.run()
    assert (outcome.ending, outcome.restarts, len(times)) == ("finished", 2, 2)


def test_the_time_to_join_begins_when_an_agent_is_started() -> None:
    job = SimulatedJob(restarts=6)
    job.cluster.patience = 10.0  # less than the last delay
    times = note_restarts(job, lambda: job.kill(1) if len(times) < 6 else None)
    job.at(Phase.RUNNING, lambda: job.kill(1))
    assert (job.run().ending, len(times)) == ("finished", 6)


@pytest.mark.parametrize(("later", "ending"), [(0.3, "finished"), (3.0, "failed")])
@pytest.mark.parametrize("elastic", [True, False])
def test_a_role_that_is_lost_just_before_its_agent_is_part_of_the_same_restart(
    elastic: bool, later: float, ending: str
) -> None:
    job = SimulatedJob(elastic=elastic, restarts=1)

    def lose_role_then_agent() -> None:
        job.exit_role(1, -9)
        job.after(later, lambda: job.kill(1))

    job.at(Phase.RUNNING, lambda: job.after(3.0, lose_role_then_agent))
    outcome = job.run()
    assert (outcome.ending, outcome.restarts) == (ending, 1)


def test_a_role_that_is_lost_just_before_its_agent_is_reported_with_the_agent() -> None:
    job = SimulatedJob(restarts=1)

    def lose_role_then_agent() -> None:
        job.exit_role(1, -9)
        job.after(0.3, lambda: job.kill(1))

    job.at(Phase.RUNNING, lambda: job.after(3.0, lose_role_then_agent))
    assert job.run().ending == "finished"
    (lost,) = job.kinds("worker_lost")
    assert (lost["rank"], lost["reason"], lost["host"]) == (1, "killed", "host-1")


# The end


def test_an_agent_that_was_lost_for_good_is_not_waited_for() -> None:
    job = SimulatedJob(restarts=0)
    job.after(JOIN_SECONDS + 5.0, lambda: job.kill(1))
    assert job.run().ending == "failed"
    assert job.now < JOIN_SECONDS + 5.0 + END_SECONDS / 10


def test_agents_that_are_late_are_not_waited_for_again() -> None:
    job = SimulatedJob()
    job.cluster.start = lambda launch: job.launch(0)  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="did not join"):
        job.run()
    assert job.now < job.cluster.patience + 1.0


def test_nothing_is_waited_for_when_the_cluster_does_not_start() -> None:
    job = SimulatedJob()

    def start(launch: Launch) -> None:
        raise OSError("no route to scheduler")

    job.cluster.start = start  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no route to scheduler"):
        job.run()
    assert job.cluster.stopped
    assert job.now == 0.0


@pytest.mark.parametrize("times", [1, 2])
def test_a_second_ctrl_c_ends_the_wait_for_agents_that_are_being_started(times: int) -> None:
    job = SimulatedJob()
    job.join_seconds = {0: 8.0, 1: 8.0}
    for number in range(times):
        job.after(1.0 + number, job.interrupt)
    assert job.run().ending == "stopped"
    assert job.cluster.stopped
    assert job.now == pytest.approx(8.0 if times == 1 else 2.0, abs=0.5)


# Agents that nothing can replace


def dismissed(job: SimulatedJob) -> list[tuple[Role, int]]:
    return [(spec.role, spec.rank) for spec in job.elastic.gone]


@pytest.mark.parametrize("again", [False, True], ids=["at once", "after no other place was found"])
def test_workers_that_do_not_need_each_other_continue_without_an_agent(again: bool) -> None:
    job = SimulatedJob(agents=3, elastic=True)
    restart = job.cluster.restart

    def find_no_place(agents: Sequence[int]) -> None:
        restart([])
        job.cluster.ended_agents += [AgentEnded("no slot", n, None, False) for n in agents]

    job.cluster.restart = find_no_place  # type: ignore[method-assign]
    job.at(Phase.RUNNING, lambda: job.after(3.0, lambda: job.kill(1, replaceable=again)))
    outcome = job.run()
    assert (outcome.ending, outcome.restarts) == ("finished", int(again))
    assert dismissed(job) == [(Role.WORKER, 1)]
    assert sorted(outcome.summaries) == [0, 2]
    assert len(job.kinds("generation")) == 1
    (warning,) = job.kinds("warning")
    assert warning["text"].startswith("the job continues with fewer workers: agent 1 on host-1 ")


def test_servers_of_an_agent_that_nothing_replaces_move_to_another() -> None:
    job = SimulatedJob(agents=3, servers=3, elastic=True)
    job.at(Phase.RUNNING, lambda: job.after(3.0, lambda: job.kill(1, replaceable=False)))
    outcome = job.run()
    assert outcome.ending == "finished"
    assert (sorted(outcome.summaries), sorted(outcome.servers)) == ([0, 2], [0, 1, 2])


def test_the_first_worker_takes_the_place_of_the_last_one_if_it_is_needed() -> None:
    job = SimulatedJob(agents=3, elastic=True, needs_first=True)
    job.at(Phase.RUNNING, lambda: job.after(3.0, lambda: job.kill(0, replaceable=False)))
    outcome = job.run()
    assert outcome.ending == "finished"
    assert dismissed(job) == [(Role.WORKER, 2)]
    assert sorted(outcome.summaries) == [0, 1]


@pytest.mark.parametrize("elastic", [True, False])
def test_without_enough_workers_a_job_fails_with_the_agent_that_nothing_replaces(
    elastic: bool,
) -> None:
    job = SimulatedJob(agents=1 if elastic else 2, elastic=elastic)
    job.at(Phase.RUNNING, lambda: job.after(3.0, lambda: job.kill(0, replaceable=False)))
    outcome = job.run()
    assert outcome.ending == "failed"
    assert outcome.failure is not None
    assert outcome.failure.message == "agent 0 on host-0 ended before its time: killed"
    assert not outcome.failure.replaceable


def test_another_generation_asks_again_for_agents_that_nothing_could_replace() -> None:
    job = SimulatedJob(agents=3, servers=1, elastic=True, saved=False, restarts=3)
    job.at(Phase.RUNNING, lambda: job.after(3.0, lambda: job.kill(1, replaceable=False)))
    # Without a checkpoint, all start again when a server is lost.
    job.after(9.0, lambda: job.agent(0).exit(job.controller._job.roles(Role.SERVER)[0], 1))
    outcome = job.run()
    assert (outcome.ending, outcome.restarts) == ("finished", 1)
    assert job.cluster.restarted == [[1]]
    assert sorted(outcome.summaries) == [0, 1, 2]


# What observers are told


@pytest.mark.parametrize("elastic", [True, False])
def test_a_restart_of_agents_alone_names_them(elastic: bool) -> None:
    job = SimulatedJob(elastic=elastic, restarts=2)
    job.join_seconds[0] = 4.0
    job.after(3.0, lambda: job.kill(1))  # while the other one is awaited
    job.at(Phase.RUNNING, lambda: job.after(3.0, lambda: job.kill(1)))
    assert job.run().ending == "finished"
    alone = [fields.get("agents") for fields in job.kinds("restart")]
    assert alone == [[1], [1] if elastic else None]


# Numbers of agents


@pytest.mark.parametrize("ends", [True, False])
def test_a_number_that_the_job_does_not_have_is_refused(ends: bool) -> None:
    job = SimulatedJob(restarts=3)

    def start(launch: Launch) -> None:
        for number in (1, 2):
            job.launch(number)

    job.cluster.start = start  # type: ignore[method-assign]
    if ends:
        job.after(1.0, lambda: job.kill(2))
    message = r"SimulatedCluster has an agent 2, but this job has 2 agents: number them from 0 .*"
    with pytest.raises(ConfigError, match=message + "0 to 1"):
        job.run()
    assert job.now < job.cluster.patience
