"""The plan of an asynchronous job, from its settings and data."""

from typing import Any

from flambeau.config import JobSettings
from flambeau.coordination.task_messages import PlanData
from flambeau.coordination.tasks import DynamicPlan


def make_plan(settings: JobSettings, data: PlanData) -> DynamicPlan:
    """Return the plan of a job's tasks; `data` is the first worker's report about the data."""
    loading = settings.loading
    common: dict[str, Any] = {"batch_size": settings.batch_size, "epochs": settings.epochs}
    if data.kind == "shares":
        return DynamicPlan.of_shares(data.sizes[0], **common)
    if data.kind == "rows":
        return DynamicPlan.of_rows(
            data.sizes[0],
            workers=settings.cluster.workers,
            drop_last=loading.drop_last,
            **common,
        )
    return DynamicPlan.of_shards(
        data.sizes,
        workers=settings.cluster.workers,
        window=loading.window(settings.batch_size) if loading.shuffle else None,
        seed=settings.seed,
        shuffle=loading.shuffle,
        drop_last=loading.drop_last,
        homes=data.homes,
        **common,
    )


def idle_warning(settings: JobSettings, plan: DynamicPlan) -> str | None:
    """Return a warning if some workers will have no rows to train on."""
    idle = plan.idle(settings.cluster.workers)
    if not idle:
        return None
    who = "worker has" if idle == 1 else "workers have"
    why = (
        f"there are fewer batches of {settings.batch_size} rows than workers. Use fewer workers, a "
        "smaller batch_size or more data"
    )
    if plan.has_homes:
        why = "the cluster has brought them no rows of the data frame. Repartition it"
    return f"{idle} {who} no rows to train on: {why}"
