"""A coordinator whose agent and roles are simulated elsewhere, or a bare socket in its place.

coordinator_process.py ours|bare < settings: strategy, workers, servers, profile
"""

import cProfile
import sys
from collections.abc import Sequence
from typing import final

from asking import Answer, say, settings

from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.clusters.open_files import raise_open_files
from flambeau.config import CodeRef, FileData, JobSettings, Local, ParameterServer, Recovery
from flambeau.coordination.payloads import ScriptPayload
from flambeau.coordination.protocol import CODEC, Messages
from flambeau.coordination.round_messages import Commit
from flambeau.coordination.task_messages import Assigned
from flambeau.coordination.tasks import BATCHES_PER_TASK, Task
from flambeau.driver.control.controller import Controller
from flambeau.driver.coordinators import RoundCoordinator, TrainingCoordinator
from flambeau.driver.task_coordinator import TaskCoordinator
from flambeau.driver.topology import Topology
from flambeau.messaging import Server, new_secret
from flambeau.observe import Event, Observer

HOST = "127.0.0.1"
BATCH_ROWS = 64
#: Never reached, but steps are granted one by one as with a limit that is.
MAX_STEPS = 1 << 40
EPOCHS = 1 << 20


@final
class SimulatedElsewhere(Cluster):
    """A cluster with one agent, which joins by itself."""

    agents, coordinator_host, patience = 1, HOST, 10.0

    def start(self, launch: Launch) -> None:
        """Nothing to start."""

    def poll(self) -> list[AgentEnded]:
        """Report no losses."""
        return []

    def restart(self, agents: Sequence[int]) -> None:
        """Fail: the simulation loses no agent."""
        raise RuntimeError(f"the agents {list(agents)} were lost; is this machine overloaded?")

    def stop(self) -> None:
        """Nothing to stop."""


@final
class Silent(Observer):
    """An observer that shows what goes wrong only."""

    def observe(self, event: Event) -> None:
        """Show warnings and failures."""
        if event.kind not in ("progress", "generation"):
            print(event.kind, dict(event.fields), file=sys.stderr)

    def close(self) -> None:
        """Nothing to close."""


def coordinator(strategy: str, workers: int, servers: int) -> TrainingCoordinator:
    """Return the coordinator of a job with simulated data."""
    consistency = "synchronous" if strategy == "rounds" else "asynchronous"
    job = JobSettings(
        model=CodeRef(path="simulated:Model"),
        train=FileData(path="simulated"),
        strategy=ParameterServer(servers=servers, consistency=consistency),
        cluster=Local(workers),
        batch_size=BATCH_ROWS,
        epochs=EPOCHS,
        max_steps=MAX_STEPS,
        checkpoints={"every_epochs": None},
        evaluation={"every_epochs": None},
    )
    if strategy == "rounds":
        return RoundCoordinator(job, tells_progress=True)
    return TaskCoordinator(job)


def run_ours(given: Answer) -> None:
    """Run the job until the simulation has ended all its roles."""
    workers, servers = given["workers"], given["servers"]
    controller = Controller(
        Topology(
            workers, servers=servers, coordinator=coordinator(given["strategy"], workers, servers)
        ),
        SimulatedElsewhere(),
        Silent(),
        Recovery(),
        graceful=True,
    )
    say(address=controller.address, secret=controller.secret.hex())
    launch = Launch(controller.address, controller.secret, "", ScriptPayload("simulated.py"))
    if given["profile"]:
        profile = cProfile.Profile()
        outcome = profile.runcall(controller.run, launch)
        profile.dump_stats(given["profile"])
    else:
        outcome = controller.run(launch)
    say(failure=str(outcome.failure or ""))


def run_bare(given: Answer) -> None:
    """Answer as many messages of the same sizes, without looking at more than their kind."""
    secret = new_secret()
    server: Server[Messages] = Server(CODEC, secret, HOST)
    say(address=server.address, secret=secret.hex())
    [assigned] = CODEC.encode(Assigned(Task(0, 0, 0, BATCHES_PER_TASK * BATCH_ROWS), None, 1 << 20))
    [commit] = CODEC.encode(Commit(0, list(range(given["workers"])), 1.0, True, False, 0))
    socket, shards, staged = server.socket, set(), 0
    roles = given["workers"] + given["servers"]
    while roles:
        peer, header = socket.recv_multipart()
        if b"TaskRequest" in header:
            socket.send_multipart([peer, assigned])
        elif b"Staged" in header:
            shards.add(peer)
            staged += 1
            if staged % (given["workers"] * given["servers"]) == 0:
                for shard in shards:
                    socket.send_multipart([shard, commit])
        elif b"RoleExited" in header:
            roles -= 1
    server.close()
    say(failure="")


if __name__ == "__main__":
    raise_open_files()
    {"ours": run_ours, "bare": run_bare}[sys.argv[1]](settings())
