"""Which optimizer tables have whose spec names none."""

from flambeau.config import JobSettings, OptimizerSpec
from flambeau.config.optimizer import TABLE_OPTIMIZERS


def table_optimizer(settings: JobSettings) -> OptimizerSpec | None:
    """`table_optimizer=`, or the optimizer of the other weights if tables can have it, too."""
    if settings.table_optimizer is not None:
        return settings.table_optimizer
    given = settings.optimizer
    if isinstance(given, OptimizerSpec) and given.name in TABLE_OPTIMIZERS:
        return OptimizerSpec(name=given.name, args=given.args)
    return None
