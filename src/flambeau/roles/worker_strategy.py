"""The strategy that a job's settings ask for, put together for one worker."""

from torch import nn

from flambeau.config.strategies import AllReduce
from flambeau.embeddings.attach import has_tables
from flambeau.roles.worker_context import WorkerContext
from flambeau.strategies.all_reduce import AllReduceStrategy
from flambeau.strategies.base import Clipping, Strategy


def make_strategy(context: WorkerContext, model: nn.Module, first_rate: float) -> Strategy:
    """The worker's side of the agreement; `first_rate` as in `Optimizers`."""
    compute, strategy = context.settings.compute, context.settings.strategy
    clipping = Clipping(compute.clip_norm, compute.clip_value)
    if isinstance(strategy, AllReduce) and not has_tables(model):
        return AllReduceStrategy(strategy, context.group, clipping)
    # Kernels take a while to load, which most jobs can do without.
    from flambeau.roles.server_access import make_served_strategy

    return make_served_strategy(context, model, clipping, first_rate)
