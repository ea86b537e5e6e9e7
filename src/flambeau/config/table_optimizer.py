"""Which optimizer tables have whose spec names none."""

from flambeau.config.job import JobSettings
from flambeau.config.optimizer import TABLE_OPTIMIZERS, OptimizerSpec


def table_optimizer(settings: JobSettings) -> OptimizerSpec | None:
    """`table_optimizer=`, or the optimizer given for the other weights if tables can have it, too.

    None: nothing was given that tables could have (see `config.tables.optimizer_of`).
    """
    given = settings.optimizer
    if settings.table_optimizer is not None or not isinstance(given, OptimizerSpec):
        return settings.table_optimizer
    if is_default(settings) or given.name not in TABLE_OPTIMIZERS:
        return None
    return OptimizerSpec(name=given.name, args=given.args)


def is_default(settings: JobSettings) -> bool:
    """Return whether nothing was said about optimizers, so that tables have one of their own."""
    return settings.table_optimizer is None and settings.optimizer == OptimizerSpec()
