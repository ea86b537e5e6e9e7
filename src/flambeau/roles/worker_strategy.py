"""Builder of one worker's strategy from a job's settings."""

from typing import TYPE_CHECKING

from torch import nn

from flambeau.config.strategies import AllReduce, Hybrid, ParameterServer
from flambeau.config.table_optimizer import is_default, table_optimizer
from flambeau.embeddings.attach import has_tables, tables_of
from flambeau.errors import ModelError
from flambeau.roles.worker_context import WorkerContext
from flambeau.strategies.all_reduce import AllReduceStrategy
from flambeau.strategies.base import Clipping, Strategy

if TYPE_CHECKING:
    from flambeau.parameter_server.channel import Access
    from flambeau.parameter_server.client import ServerClient
    from flambeau.strategies.local_tables import LocalTables


def make_strategy(context: WorkerContext, model: nn.Module, first_rate: float) -> Strategy:
    """Build the worker's strategy; `first_rate` is that of `Optimizers`."""
    compute, strategy = context.settings.compute, context.settings.strategy
    clipping = Clipping(compute.clip_norm, compute.clip_value)
    if isinstance(strategy, AllReduce) and not has_tables(model):
        return AllReduceStrategy(strategy, context.group, clipping)
    return _strategy_with_tables(context, model, clipping, first_rate)


def _strategy_with_tables(
    context: WorkerContext, model: nn.Module, clipping: Clipping, first_rate: float
) -> Strategy:
    """Return the strategy of a job with tables in this process, or with servers."""
    # Loads kernels, which takes a while; most jobs without tables never get here.
    from flambeau.strategies.hybrid import HybridStrategy
    from flambeau.strategies.parameter_server import ParameterServerStrategy

    strategy = context.settings.strategy
    _require_table_optimizers(context, model)
    if isinstance(strategy, AllReduce):
        own = _local_tables(context, model)
        return AllReduceStrategy(strategy, context.group, clipping, own, first_rate)
    client = _connect(context)
    if isinstance(strategy, ParameterServer):
        return ParameterServerStrategy(strategy, client, context.group, clipping, first_rate)
    return HybridStrategy(strategy, client, context.group, clipping, first_rate)


def _access(context: WorkerContext) -> "Access":
    """Return how this worker connects to the servers, whose addresses may change."""
    from flambeau.parameter_server.channel import Access

    strategy = context.settings.strategy
    assert isinstance(strategy, ParameterServer | Hybrid)

    def address_of(shard: int) -> str:
        servers = context.coordinator.servers
        return servers[shard] if shard < len(servers) else ""

    return Access(
        context.coordinator.secret, address_of, strategy.timeout, strategy.encrypt, share=True
    )


def _connect(context: WorkerContext) -> "ServerClient":
    """Return a client of the servers of this generation."""
    from flambeau.parameter_server.client import ServerClient

    strategy, spec = context.settings.strategy, context.coordinator.spec
    assert isinstance(strategy, ParameterServer | Hybrid)
    context.coordinator.wait_until_all_joined()
    return ServerClient(
        strategy.servers, _access(context), spec.rank, spec.generation, strategy.compression
    )


def _local_tables(context: WorkerContext, model: nn.Module) -> "LocalTables":
    """Return tables in this process; raise if there are other workers."""
    from flambeau.embeddings.in_process import InProcessTables
    from flambeau.strategies.local_tables import LocalTables

    if context.group.size > 1:
        names = ", ".join(spec.name for spec in tables_of(model))
        raise ModelError(
            f"the model has tables ({names}), which {context.group.size} workers cannot share by "
            "all-reduce: use strategy=fb.ParameterServer(...) or fb.Hybrid(...), or one worker"
        )
    optimizer = table_optimizer(context.settings)
    return LocalTables(InProcessTables(context.settings.seed, optimizer, context.run.path))


def _require_table_optimizers(context: WorkerContext, model: nn.Module) -> None:
    """Raise `ModelError` for a trainable table without an optimizer."""
    if is_default(context.settings) or table_optimizer(context.settings) is not None:
        return
    for spec in tables_of(model):
        if spec.trainable and spec.optimizer is None:
            raise ModelError(
                f"table '{spec.name}' has no optimizer, and the one of the other weights is not "
                'for tables: give table_optimizer=fb.optim("adagrad", lr=0.05), for example'
            )
