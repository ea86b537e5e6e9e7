"""Strategies with tables or servers, put together for one worker."""

from torch import nn

from flambeau.config.strategies import AllReduce, Hybrid, ParameterServer
from flambeau.embeddings.attach import tables_of
from flambeau.embeddings.in_process import InProcessTables
from flambeau.errors import ModelError
from flambeau.job.surroundings import Surroundings
from flambeau.job.table_optimizer import is_default, table_optimizer
from flambeau.parameter_server.channel import Access
from flambeau.parameter_server.client import ServerClient
from flambeau.strategies.all_reduce import AllReduceStrategy
from flambeau.strategies.base import Clipping, Strategy
from flambeau.strategies.hybrid import HybridStrategy
from flambeau.strategies.parameter_server import ParameterServerStrategy
from flambeau.strategies.tables import OwnTables


def make_served_strategy(
    where: Surroundings, model: nn.Module, clipping: Clipping, first_rate: float
) -> Strategy:
    """The strategy of a job with tables in this process, or with servers."""
    strategy = where.settings.strategy
    require_table_optimizers(where, model)
    if isinstance(strategy, AllReduce):
        own = own_tables(where, model)
        return AllReduceStrategy(strategy, where.group, clipping, own, first_rate)
    client = connect(where)
    if isinstance(strategy, ParameterServer):
        return ParameterServerStrategy(strategy, client, where.group, clipping, first_rate)
    return HybridStrategy(strategy, client, where.group, clipping, first_rate)


def access(where: Surroundings) -> Access:
    """How this worker reaches the servers, wherever they are by then."""
    strategy = where.settings.strategy
    assert isinstance(strategy, ParameterServer | Hybrid)

    def address_of(shard: int) -> str:
        servers = where.link.servers
        return servers[shard] if shard < len(servers) else ""

    return Access(where.link.secret, address_of, strategy.timeout, strategy.encrypt, share=True)


def connect(where: Surroundings) -> ServerClient:
    """The servers of this generation."""
    strategy, spec = where.settings.strategy, where.link.spec
    assert isinstance(strategy, ParameterServer | Hybrid)
    where.link.wait_until_all_joined()
    return ServerClient(
        strategy.servers, access(where), spec.rank, spec.generation, strategy.compression
    )


def own_tables(where: Surroundings, model: nn.Module) -> OwnTables:
    """Tables in this process, if there is no other worker."""
    if where.group.size > 1:
        names = ", ".join(spec.name for spec in tables_of(model))
        raise ModelError(
            f"the model has tables ({names}), which {where.group.size} workers cannot share by "
            "all-reduce: use strategy=fb.ParameterServer(...) or fb.Hybrid(...), or one worker"
        )
    optimizer = table_optimizer(where.settings)
    return OwnTables(InProcessTables(where.settings.seed, optimizer, where.run.path))


def require_table_optimizers(where: Surroundings, model: nn.Module) -> None:
    """A table that learns needs to be told how."""
    if is_default(where.settings) or table_optimizer(where.settings) is not None:
        return
    for spec in tables_of(model):
        if spec.trainable and spec.optimizer is None:
            raise ModelError(
                f"table '{spec.name}' has no optimizer, and the one of the other weights is not "
                'for tables: give table_optimizer=fb.optim("adagrad", lr=0.05), for example'
            )
