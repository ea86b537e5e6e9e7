"""The loss of agents: they are replaced, alone or together, or the job fails."""

from collections.abc import Sequence
from typing import final

import msgspec

from flambeau.clusters.base import AgentEnded
from flambeau.coordination.failures import Cause, Failure
from flambeau.coordination.membership import Member
from flambeau.coordination.placement import place_again
from flambeau.coordination.protocol import EndRole
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.driver.control.phases import Phase, Trigger
from flambeau.driver.control.running_job import RunningJob


@final
class LostAgents:
    """Detection and replacement of lost agents.

    If the cluster replaces single agents and the strategy allows it, the other workers continue
    meanwhile; otherwise all roles restart from the last checkpoint.
    """

    def __init__(self, job: RunningJob) -> None:
        self._job = job
        #: Agents that are being replaced while the others train, and why.
        self._returning: dict[int, Failure] = {}
        #: Whether the generation is being ended in order to start the next one.
        self.again = False
        #: Lost agents that only another generation would need.
        self._unreplaced: set[int] = set()
        #: When to start the replacements of lost agents.
        self._planned: dict[int, float] = {}

    def notice(self) -> None:
        """Poll the cluster, and check for agents that are silent or have not joined in time."""
        job = self._job
        timeout = job.recovery.heartbeat_timeout
        silence = f"no sign of life for {timeout:g} s (recovery.heartbeat_timeout)"
        ended = [each for each in job.cluster.poll() if not self._is_planned(each.agent)]
        for each in ended:
            job.agents.require_known(each.agent)
        named = {each.agent for each in ended}
        silent = [agent for agent in job.agents.silent(timeout) if agent not in named]
        ended += [AgentEnded(silence, agent) for agent in silent]
        if ended:
            self.lose(ended)
        late = job.agents.overdue()
        if late and job.phase is Phase.GATHERING:
            job.trigger(Trigger.LATE)
        elif late and job.phase is Phase.RUNNING and self._returning:
            limit = f"nothing has replaced it: {job.cluster.late(late)}"
            job.agents.give_up(late)
            self._give_up(late, self._failure_of(AgentEnded(limit, late[0]), late))

    def lose(self, ended: Sequence[AgentEnded], *, restart: bool = True) -> None:
        """Handle the end of agents and of their roles.

        `restart`: the cluster has not already started their replacements.
        """
        job = self._job
        named = [each.agent for each in ended if each.agent is not None]
        single = job.cluster.replaces_single_agents and len(named) == len(ended)
        gone = named if single else list(range(job.cluster.agents))
        needed, failure = self._needs(gone), self._failure_of(ended[0], gone)
        if needed:
            self._emit(ended)
        # An agent that was started for the next generation and ended before it joined is restarted
        # with that generation: its repeated ends in this one would be part of the same restart.
        too_soon = [agent for agent in gone if self.again and not job.agents.is_present(agent)]
        job.agents.lose(gone)
        for agent in gone:
            job.restarts.withdraw(agent)
        if not needed:
            self._mark_exited(gone)
            self._unreplaced.update(gone)
            return
        lost = [member.spec for agent in gone for member in job.members.of_agent(agent)]
        job.restarts.absorb(lost, job.clock())
        placed = job.cluster.replaces_agents and all(each.replaceable for each in ended)
        replaceable = placed and (job.restarts.left or self.again)
        if not placed and single and self._others_continue(gone) and self._dismiss(gone, failure):
            return
        if job.signals.count or not replaceable:
            self._give_up(gone, failure)
            return
        if single and self._others_continue(gone):
            self._await_return(gone, failure)
        else:
            self._begin_again(gone, failure)
        if not restart:
            job.agents.expect(gone)
        elif single or len(too_soon) == len(gone):
            self._unreplaced.update(too_soon)
            self._plan([agent for agent in gone if agent not in too_soon])
        else:
            self._plan(gone)

    def may_join(self, agent: int) -> bool:
        """Return whether to admit an agent that has joined.

        An agent that joins while all are about to be restarted is one of those being ended.
        """
        if self._planned and not self._job.cluster.replaces_single_agents:
            return False
        self._planned.pop(agent, None)  # the cluster itself has started it
        return True

    def restart_due(self) -> None:
        """Start agents whose delay is over."""
        now = self._job.clock()
        agents = sorted(agent for agent, due in self._planned.items() if due <= now)
        for agent in agents:
            del self._planned[agent]
        if agents:
            self._job.agents.restart(agents)

    def start_returned(self) -> None:
        """Start the roles of agents that were replaced while the others trained."""
        job = self._job
        for agent in [agent for agent in self._returning if job.agents.is_ready(agent)]:
            failure = self._returning.pop(agent)
            if not job.agents.brought_the_same(agent):
                # Tasks name rows that no agent has any more, so all restart: the same restart.
                self.again = True
                job.trigger(Trigger.LOST)
                return
            for spec in self._place_again(agent):
                job.restarts.plan_role(spec, failure)

    def replace_missing(self) -> None:
        """Start all agents that the next generation needs."""
        self.again = False
        missing = sorted(self._unreplaced)
        self._unreplaced.clear()
        if missing:
            self._job.agents.lose(missing)
            self._plan(missing)

    @property
    def waiting(self) -> list[RoleSpec]:
        """The roles whose agent has not been replaced yet."""
        return [member.spec for member in self._working(list(self._returning))]

    def forget(self) -> None:
        """Drop roles that wait for their agent: the generation is being ended."""
        self._mark_exited(list(self._returning))

    def _plan(self, agents: Sequence[int]) -> None:
        self._planned |= dict.fromkeys(agents, self._job.restarts.due)
        self.restart_due()

    def _is_planned(self, agent: int | None) -> bool:
        """Return whether an agent that has ended is about to be replaced anyway."""
        if self._job.cluster.replaces_single_agents:
            return agent in self._planned
        return bool(self._planned)

    def _working(self, agents: Sequence[int]) -> list[Member]:
        members = [member for agent in agents for member in self._job.members.of_agent(agent)]
        return [member for member in members if not (member.done or member.exited)]

    def _place_again(self, agent: int) -> list[RoleSpec]:
        """Return the roles of an agent that was replaced, perhaps on another machine."""
        job = self._job
        lost = [member.spec for member in self._working([agent])]
        others = [member.spec for member in job.members.all() if member.spec.node != agent]
        placed = place_again(lost, job.agents.places, others)
        for before, spec in zip(lost, placed, strict=True):
            job.generation.replace(before, spec, job.clock())
        return placed

    def _needs(self, agents: Sequence[int]) -> bool:
        """Return whether these agents have any work left."""
        if self._job.phase is Phase.RUNNING:
            return self._job.agents.carrying or bool(self._working(agents))
        return self._job.phase is not Phase.OVER

    def _failure_of(self, ended: AgentEnded, gone: Sequence[int]) -> Failure:
        job = self._job
        who = "an agent" if ended.agent is None else job.agents.where(ended.agent)
        roles = job.members.of_agent(gone[0]) or job.members.all()
        spec = roles[0].spec if roles else RoleSpec(job.topology.role, 0, 1, 0, 1, gone[0], 0)
        text = f"{who} ended before its time: {ended.reason}"
        replaceable = job.cluster.replaces_agents and ended.replaceable
        return Failure(spec, Cause.DIED, text, replaceable=replaceable)

    def _emit(self, ended: Sequence[AgentEnded]) -> None:
        # Roles that died just before their agent have not been reported yet.
        died = {each.spec for each in self._job.failures if each.cause is Cause.DIED}
        for each in ended:
            if each.agent is not None:
                fields = self._job.agents.loss_fields(each)
                working = {member.spec for member in self._working([each.agent])}
                for member in self._job.members.of_agent(each.agent):
                    if member.spec in working | died:
                        self._job.emit_of(member.spec, "worker_lost", **fields)

    def _give_up(self, gone: Sequence[int], failure: Failure) -> None:
        if not self._job.signals.count:
            self._job.outcome.failure = failure
        self._mark_exited(gone)
        self._job.trigger(Trigger.LOST_FOR_GOOD)

    def _others_continue(self, gone: Sequence[int]) -> bool:
        serves = any(member.spec.role is Role.SERVER for member in self._working(gone))
        return self._job.is_elastic and (not serves or self._job.restarts.can_restore_servers)

    def _await_return(self, gone: Sequence[int], failure: Failure) -> None:
        job = self._job
        number, reason = job.generation.number, failure.message
        job.restarts.decide(number, reason, job.clock(), agents=list(gone))
        for agent in gone:
            self._returning[agent] = failure
            for member in job.members.of_agent(agent):
                member.exited = member.exited or member.done
            for member in self._working([agent]):
                job.make_room(member.spec)

    def _dismiss(self, gone: Sequence[int], failure: Failure) -> bool:
        """Let the others continue with fewer workers; return False if they cannot.

        Other roles of these agents move to the remaining agents. So does the first worker if it is
        needed: it takes the place of the last worker.
        """
        job = self._job
        lost = [member.spec for member in self._working(gone)]
        left = [m for m in job.members.group() if m.spec not in lost and self._is_left(m)]
        last = next((member.spec for member in reversed(left) if not member.done), None)
        first = next((s for s in lost if s.rank == 0 and s.role.in_group), None)
        moves_first = first is not None and job.coordinator.needs_first
        if not left or (moves_first and last is None):
            return False
        job.emit("warning", text=f"the job continues with fewer workers: {failure.message}")
        for agent in gone:
            self._returning.pop(agent, None)
        self._unreplaced.update(gone)  # another generation would need them
        for spec in lost:
            if not spec.role.in_group:
                self._move(spec, self._least_busy(), failure)
            elif spec == first and moves_first and last is not None:
                job.agents.send(last.node, EndRole(last))
                self._remove(last)
                self._move(spec, last.node, failure)
            else:
                self._remove(spec)
        return True

    def _is_left(self, member: Member) -> bool:
        return member.done or self._job.agents.is_present(member.spec.node)

    def _least_busy(self) -> int:
        job = self._job
        present = [n for n in range(job.cluster.agents) if job.agents.is_present(n)]
        return min(present, key=lambda agent: len(job.members.of_agent(agent)))

    def _remove(self, spec: RoleSpec) -> None:
        self._job.members.remove(spec)
        self._job.coordinator.dismissed(spec)

    def _move(self, lost: RoleSpec, agent: int, failure: Failure) -> None:
        """Start a lost role on another agent."""
        job = self._job
        room = job.make_room(lost)
        others = [member.spec for member in job.members.all() if member.spec != room]
        moved = msgspec.structs.replace(room, node=agent)
        (spec,) = place_again([moved], job.agents.places, others)
        job.generation.replace(room, spec, job.clock())
        job.restarts.plan_role(spec, failure)

    def _begin_again(self, gone: Sequence[int], failure: Failure) -> None:
        job = self._job
        self._mark_exited(gone)
        if not self.again:
            begun = job.phase not in (Phase.GATHERING, Phase.PREPARING)
            number = job.generation.number + begun
            who = {} if begun else {"agents": list(gone)}
            job.restarts.decide(number, failure.message, job.clock(), **who)
        job.trigger(Trigger.LOST)
        self.again = job.phase is Phase.ENDING

    def _mark_exited(self, agents: Sequence[int]) -> None:
        for agent in agents:
            self._returning.pop(agent, None)
            for member in self._job.members.of_agent(agent):
                member.exited = True
