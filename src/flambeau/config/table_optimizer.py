"""Choice of the optimizer for tables whose spec names none."""

from flambeau.config.job import JobSettings
from flambeau.config.optimizer import TABLE_OPTIMIZERS, OptimizerSpec


def table_optimizer(settings: JobSettings) -> OptimizerSpec | None:
    """Return `table_optimizer=`, or the optimizer of the other weights if tables support it.

    Return None if no given optimizer is for tables (see `config.tables.optimizer_of`).
    """
    given = settings.optimizer
    if settings.table_optimizer is not None or not isinstance(given, OptimizerSpec):
        return settings.table_optimizer
    if is_default(settings) or given.name not in TABLE_OPTIMIZERS:
        return None
    return OptimizerSpec(name=given.name, args=given.args)


def is_default(settings: JobSettings) -> bool:
    """Return whether no optimizer was given, so that tables use their own default."""
    return settings.table_optimizer is None and settings.optimizer == OptimizerSpec()
