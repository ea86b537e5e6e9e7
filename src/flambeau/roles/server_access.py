"""Strategies with tables or servers, put together for one worker."""

from torch import nn

from flambeau.config.strategies import AllReduce, Hybrid, ParameterServer
from flambeau.embeddings.attach import tables_of
from flambeau.embeddings.in_process import InProcessTables
from flambeau.errors import ModelError
from flambeau.parameter_server.channel import Access
from flambeau.parameter_server.client import ServerClient
from flambeau.roles.table_optimizer import is_default, table_optimizer
from flambeau.roles.worker_context import WorkerContext
from flambeau.strategies.all_reduce import AllReduceStrategy
from flambeau.strategies.base import Clipping, Strategy
from flambeau.strategies.hybrid import HybridStrategy
from flambeau.strategies.local_tables import LocalTables
from flambeau.strategies.parameter_server import ParameterServerStrategy


def make_served_strategy(
    context: WorkerContext, model: nn.Module, clipping: Clipping, first_rate: float
) -> Strategy:
    """The strategy of a job with tables in this process, or with servers."""
    strategy = context.settings.strategy
    require_table_optimizers(context, model)
    if isinstance(strategy, AllReduce):
        own = own_tables(context, model)
        return AllReduceStrategy(strategy, context.group, clipping, own, first_rate)
    client = connect(context)
    if isinstance(strategy, ParameterServer):
        return ParameterServerStrategy(strategy, client, context.group, clipping, first_rate)
    return HybridStrategy(strategy, client, context.group, clipping, first_rate)


def access(context: WorkerContext) -> Access:
    """How this worker reaches the servers, wherever they are by then."""
    strategy = context.settings.strategy
    assert isinstance(strategy, ParameterServer | Hybrid)

    def address_of(shard: int) -> str:
        servers = context.coordinator.servers
        return servers[shard] if shard < len(servers) else ""

    return Access(
        context.coordinator.secret, address_of, strategy.timeout, strategy.encrypt, share=True
    )


def connect(context: WorkerContext) -> ServerClient:
    """The servers of this generation."""
    strategy, spec = context.settings.strategy, context.coordinator.spec
    assert isinstance(strategy, ParameterServer | Hybrid)
    context.coordinator.wait_until_all_joined()
    return ServerClient(
        strategy.servers, access(context), spec.rank, spec.generation, strategy.compression
    )


def own_tables(context: WorkerContext, model: nn.Module) -> LocalTables:
    """Tables in this process, if there is no other worker."""
    if context.group.size > 1:
        names = ", ".join(spec.name for spec in tables_of(model))
        raise ModelError(
            f"the model has tables ({names}), which {context.group.size} workers cannot share by "
            "all-reduce: use strategy=fb.ParameterServer(...) or fb.Hybrid(...), or one worker"
        )
    optimizer = table_optimizer(context.settings)
    return LocalTables(InProcessTables(context.settings.seed, optimizer, context.run.path))


def require_table_optimizers(context: WorkerContext, model: nn.Module) -> None:
    """A table that learns needs to be told how."""
    if is_default(context.settings) or table_optimizer(context.settings) is not None:
        return
    for spec in tables_of(model):
        if spec.trainable and spec.optimizer is None:
            raise ModelError(
                f"table '{spec.name}' has no optimizer, and the one of the other weights is not "
                'for tables: give table_optimizer=fb.optim("adagrad", lr=0.05), for example'
            )
