from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flambeau.clusters import agent as agent_module
from flambeau.clusters.affinity.bindings import Binding
from flambeau.clusters.affinity.processors import Core, Processors
from flambeau.clusters.agent import Agent, agent_main, site_of
from flambeau.clusters.base import Launch
from flambeau.clusters.file_transfer.mirror import Mirror
from flambeau.clusters.machine import machine_identity
from flambeau.clusters.process_starter import Starter
from flambeau.coordination.file_messages import AgentBeat, AgentJoined
from flambeau.coordination.payloads import InitialWeights, ScriptPayload, Site, TrainingPayload
from flambeau.coordination.protocol import (
    CODEC,
    EndRole,
    EndRoles,
    RoleExited,
    Shutdown,
    StartRoles,
)
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.errors import MessagingError
from flambeau.kernels.cores import usable_cores
from flambeau.messaging import Server, new_secret


class FakeProcess:
    code: int | None = None

    def poll(self) -> int | None:
        return self.code


class FakeRole:
    """A role that notes how it is ended."""

    def __init__(
        self,
        launch: Launch,
        site: Site,
        spec: RoleSpec,
        binding: Binding,
        starter: Starter,
    ) -> None:
        self.site, self.spec, self.binding = site, spec, binding
        self.process = FakeProcess()
        self.outputs: dict[int, Any] = {}
        self.ended: list[float] = []
        self.finished = False

    def end(self, grace: float) -> None:
        self.ended.append(grace)

    def enforce(self) -> None:
        """Its time is never up."""

    def finish(self) -> None:
        self.finished = True


class FakeClient:
    def __init__(self) -> None:
        self.inbox: list[Any] = []
        self.sent: list[Any] = []

    def receive(self, timeout: float) -> tuple[Any, list[Any]] | None:
        return (self.inbox.pop(0), []) if self.inbox else None

    def send(self, message: Any) -> None:
        self.sent.append(message)


class Machine:
    """An agent that is told things one by one."""

    def __init__(self) -> None:
        self.client = FakeClient()
        client: Any = self.client
        self.agent = Agent(
            Launch("tcp://127.0.0.1:1", b"", "mine", ScriptPayload("none.py")), client
        )

    def tell(self, message: Any) -> None:
        self.client.inbox.append(message)
        self.agent._obey()

    @property
    def roles(self) -> list[Any]:
        return list(self.agent._running)


def spec(rank: int, role: Role = Role.WORKER, generation: int = 0, attempt: int = 0) -> RoleSpec:
    return RoleSpec(role, rank, 2, 0, 1, 0, generation, attempt)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(agent_module, "RunningRole", FakeRole)
    return Machine()


def test_one_role_is_ended_at_once_and_the_others_go_on(machine: Machine) -> None:
    machine.tell(StartRoles([spec(0), spec(1), spec(0, Role.SERVER)]))
    machine.tell(EndRole(spec(1)))
    assert [role.ended for role in machine.roles] == [[], [0], []]


def test_the_one_that_takes_its_place_is_another_role(machine: Machine) -> None:
    machine.tell(StartRoles([spec(0)]))
    machine.tell(StartRoles([spec(0, attempt=1)]))
    machine.tell(EndRole(spec(0)))
    assert [role.ended for role in machine.roles] == [[0], []]


def test_ending_a_role_that_has_exited_does_nothing(machine: Machine) -> None:
    machine.tell(EndRole(spec(0)))
    assert machine.roles == []


def test_a_generation_is_ended_with_its_grace(machine: Machine) -> None:
    machine.tell(StartRoles([spec(0), spec(1, generation=1)]))
    machine.tell(EndRoles(1, 5.0))
    assert [role.ended for role in machine.roles] == [[], [5.0]]


def test_a_shutdown_ends_all_at_once(machine: Machine) -> None:
    machine.tell(StartRoles([spec(0), spec(1, generation=1)]))
    machine.tell(Shutdown())
    assert [role.ended for role in machine.roles] == [[0], [0]]


def test_an_exit_is_reported_with_its_code(machine: Machine) -> None:
    machine.tell(StartRoles([spec(0), spec(1)]))
    gone, stays = machine.roles
    gone.process.code = -9
    machine.agent._reap()
    assert machine.client.sent == [RoleExited(spec(0), -9)]
    assert machine.roles == [stays]
    assert gone.finished


RUN = TrainingPayload({}, "/driver/run", InitialWeights("runs/other", "step-7", ["layers.*"]))


def test_roles_find_the_run_where_the_driver_has_it() -> None:
    assert site_of(RUN, None) == Site("/driver/run", RUN.initial)


def test_roles_that_do_not_see_the_run_find_the_mirror_and_what_it_starts_from(
    tmp_path: Path,
) -> None:
    mirror = Mirror(str(tmp_path), 1 << 20, None)
    there = InitialWeights(f"{mirror.root}/init@step-7", "step-7", ["layers.*"])
    assert site_of(RUN, mirror) == Site(str(mirror.root), there)


def test_a_run_that_is_resumed_refers_to_what_the_user_named(tmp_path: Path) -> None:
    mirror = Mirror(str(tmp_path), 1 << 20, None)
    resumed = TrainingPayload({}, "/driver/run", InitialWeights("runs/other"))
    assert site_of(resumed, mirror) == Site(str(mirror.root), resumed.initial)


def test_roles_learn_which_rows_are_where(machine: Machine) -> None:
    machine.tell(StartRoles([spec(0)], {"train": [[3], [4]]}, "first"))
    machine.tell(StartRoles([spec(1)]))
    assert [role.site for role in machine.roles] == [
        Site(spools={"train": [[3], [4]]}, frames_digest="first"),
        Site(),
    ]


def test_a_server_computes_with_one_thread(machine: Machine) -> None:
    machine.tell(StartRoles([spec(0, Role.SERVER)]))
    assert machine.roles[0].binding.threads == 1


def test_a_worker_gets_its_share_of_the_agents_cores(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    processors = Processors(tuple(Core(0, (number,)) for number in range(4)))
    monkeypatch.setattr(agent_module, "read_processors", lambda: processors)
    # The second agent of a machine: another one has the first half of the cores.
    second = RoleSpec(Role.WORKER, 1, 2, 1, 2, 1, 0, core_share=(1, 2))
    # A launcher has given each of two agents cores of its own.
    bound = RoleSpec(Role.WORKER, 1, 2, 1, 2, 1, 1, core_share=(0, 1))
    machine.tell(StartRoles([second, bound]))
    assert [role.binding.cpus for role in machine.roles] == [(2, 3), (0, 1, 2, 3)]


@pytest.mark.parametrize("threads", [None, 3])
def test_without_affinity_a_worker_is_not_bound_and_has_threads_only_if_asked_for(
    machine: Machine, threads: int | None
) -> None:
    machine.agent._launch = msgspec.structs.replace(
        machine.agent._launch, affinity=False, threads_per_worker=threads
    )
    machine.tell(StartRoles([spec(0)]))
    assert machine.roles[0].binding == Binding((), threads)


@pytest.mark.parametrize("given", [None, "rack 7"])
def test_an_agent_reports_its_machine_and_cores(given: str | None) -> None:
    server = Server(CODEC, secret := new_secret(), "127.0.0.1")
    launch = Launch(server.address, secret, "mine", ScriptPayload("none.py"))
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(agent_main, launch, 0, "127.0.0.1", machine=given)
        while not isinstance((envelope := server.receive(10)).message, AgentJoined):
            pass
        server.send(envelope.peer, Shutdown())
        serving.result(timeout=30)
    server.close()
    assert envelope.message.machine == (given or machine_identity())
    assert envelope.message.cores == usable_cores()


def test_an_agent_without_a_coordinator_ends() -> None:
    server = Server(CODEC, secret := new_secret(), "127.0.0.1")
    launch = Launch(server.address, secret, "mine", ScriptPayload("none.py"))
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(agent_main, launch, 3, "127.0.0.1")
        kinds = set()
        while kinds != {AgentJoined, AgentBeat}:
            envelope = server.receive(10)
            assert envelope is not None
            assert isinstance(envelope.message, AgentJoined | AgentBeat)
            assert envelope.message.agent == 3
            kinds.add(type(envelope.message))
        server.close()
        with pytest.raises(MessagingError, match="the coordinator is gone"):
            serving.result(timeout=30)
