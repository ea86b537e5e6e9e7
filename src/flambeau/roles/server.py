"""The server role: one shard of the parameter server."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from flambeau.checkpoint import RunDirectory, user_code
from flambeau.checkpoint.manifest import Manifest
from flambeau.checkpoint.references import parse_reference, resolve
from flambeau.clusters.child_process import ChildSpec
from flambeau.config import JobSettings
from flambeau.config.strategies import Hybrid, ParameterServer
from flambeau.config.table_optimizer import table_optimizer
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.payloads import InitialWeights, TrainingPayload
from flambeau.coordination.protocol import CODEC as COORDINATION
from flambeau.coordination.protocol import Messages, Restore, ServerReady, ShardJoined
from flambeau.coordination.round_messages import Commit, NormRequest
from flambeau.errors import RequestTimeoutError
from flambeau.messaging import Client, Server
from flambeau.parameter_server.protocol import CODEC, MAX_FRAME_BYTES
from flambeau.parameter_server.restoring import Restoring
from flambeau.parameter_server.service import Coordinator, Service
from flambeau.parameter_server.shard import ServerShard, ShardSettings
from flambeau.runs import import_folders
from flambeau.training.optimizers import optimizer_class

REPORT_SECONDS = 2.0
RESTORE_SECONDS = 60.0
#: Replies that may be queued for one worker, which never has more than a few open requests.
HIGH_WATER = 256


def serve(child: ChildSpec, coordinator: CoordinatorClient) -> dict[str, Any]:
    """Serve until the workers are done; return statistics."""
    payload = child.payload
    assert isinstance(payload, TrainingPayload)
    settings, run = JobSettings.parse(payload.settings), RunDirectory(child.site.run_dir)
    strategy = settings.strategy
    assert isinstance(strategy, ParameterServer | Hybrid)
    restoring = _restoring(coordinator, run, child.site.initial)
    shard = ServerShard(_shard_settings(settings, run, coordinator))
    server = Server(
        CODEC,
        coordinator.secret,
        child.site.host,
        max_bytes=MAX_FRAME_BYTES,
        high_water=HIGH_WATER,
        encrypt=strategy.encrypt,
        share=True,
        on_refusal=lambda text: coordinator.report(
            "warning", text=f"{coordinator.spec.name} {text}"
        ),
    )
    rounds = RoundChannel(coordinator) if strategy.consistency == "synchronous" else None
    told = rounds.coordinator if rounds is not None else None
    service = Service(shard, server, coordinator.spec.generation, restoring, told)
    poller = zmq.Poller()
    poller.register(server.socket, zmq.POLLIN)
    if rounds is not None:
        rounds.join(poller)
    coordinator.send(ServerReady(coordinator.spec, server.address))
    try:
        _loop(service, poller, rounds, coordinator)
    finally:
        server.close()
        if rounds is not None:
            rounds.close()
    return _summary(service)


class RoundChannel:
    """The shard's own connection to the coordinator, for decisions about rounds."""

    def __init__(self, coordinator: CoordinatorClient) -> None:
        self._coordinator = coordinator
        self._client: Client[Messages] = Client(
            COORDINATION, coordinator.secret, coordinator.coordinator
        )
        self.coordinator = Coordinator(self._client.send, coordinator.spec.generation)

    def join(self, poller: zmq.Poller) -> None:
        """Add the connection to a poller, and report this shard to the coordinator."""
        poller.register(self._client.socket, zmq.POLLIN)
        self._client.send(ShardJoined(self._coordinator.spec))

    def hear(self, decided: Callable[[NormRequest | Commit], None]) -> None:
        """Pass on the coordinator's decisions that have arrived."""
        while (received := self._client.receive(0)) is not None:
            message, _ = received
            if isinstance(message, NormRequest | Commit):
                decided(message)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _loop(
    service: Service,
    poller: zmq.Poller,
    rounds: RoundChannel | None,
    coordinator: CoordinatorClient,
) -> None:
    due = time.monotonic() + REPORT_SECONDS
    while not coordinator.stop_requested:
        service.turn(poller)
        if rounds is not None:
            rounds.hear(service.decided)
        if time.monotonic() >= due:
            due = time.monotonic() + REPORT_SECONDS
            coordinator.report("server", **_summary(service))
    coordinator.report("server", **_summary(service))


def _summary(service: Service) -> dict[str, Any]:
    shard = service.shard
    return {
        "shard": shard.settings.index,
        "shards": shard.settings.count,
        "version": shard.version,
        **service.statistics.summary(shard.tables),
    }


def _restoring(
    coordinator: CoordinatorClient, run: RunDirectory, initial: InitialWeights | None
) -> Restoring | None:
    """Return what to restore: this run's checkpoint, another run's tables, or nothing."""
    told = threading.Event()
    words: list[Restore] = []

    def hear(message: Restore, buffers: Sequence[Any]) -> None:
        words.append(message)
        told.set()

    coordinator.on(Restore, hear)
    if not told.wait(RESTORE_SECONDS):
        raise RequestTimeoutError("the coordinator did not send the initial state")
    if words[0].checkpoint is not None:
        return Restoring(run.checkpoints / words[0].checkpoint)
    if initial is not None:
        path, which = parse_reference(initial.reference)
        source = resolve(RunDirectory(path), which)
        if Manifest.read(source).tables:
            return Restoring(source, afresh=True)
    return None


def _shard_settings(
    settings: JobSettings, run: RunDirectory, coordinator: CoordinatorClient
) -> ShardSettings:
    import_folders.use(run.code)

    def load_code(ref: Any) -> Any:
        return user_code.load(ref, directory=run.code)

    return ShardSettings(
        index=coordinator.spec.rank,
        count=coordinator.spec.world,
        seed=settings.seed,
        table_optimizer=table_optimizer(settings),
        make_optimizer=lambda groups: optimizer_class(settings.optimizer, load_code)(groups),
        clip_value=settings.compute.clip_value,
        directory=run.path,
    )
