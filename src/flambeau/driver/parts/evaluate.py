"""Metrics of a run's checkpoint, by this process or by several."""

from functools import partial
from typing import Any

from flambeau.checkpoint import RunDirectory, resolve
from flambeau.config import Cluster, JobSettings, Local
from flambeau.driver.parts.part_job import PartJob
from flambeau.driver.spmd import comparable, together
from flambeau.driver.topology import cluster_of
from flambeau.errors import ConfigError
from flambeau.runs.evaluation import Evaluation, MergedScores, cut_for_evaluation
from flambeau.runs.trained_run import load_model, open_given
from flambeau.training.evaluation import Scores


def evaluate_run(
    run: RunDirectory,
    settings: JobSettings,
    which: str,
    data: Any,
    metrics: tuple[str, ...],
    workers: int | None = None,
    cluster: Cluster | None = None,
) -> Scores:
    """Return the metrics of a checkpoint on `data`, or on the job's validation data.

    Several workers, or those of a cluster, evaluate parts of the data, whose metrics are merged.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers={workers}: give at least 1")
    where = cluster_of(cluster)
    given = {"run": run.path, "checkpoint": which, "metrics": metrics, "cluster": where}
    evaluate = partial(_evaluate, run, settings, which, data, metrics, workers)
    return together(where, "evaluate", comparable(given), evaluate, [run.path])


def _evaluate(
    run: RunDirectory,
    settings: JobSettings,
    which: str,
    data: Any,
    metrics: tuple[str, ...],
    asked: int | None,
    cluster: Cluster,
) -> Scores:
    source = open_given(run, settings, data)
    checkpoint = resolve(run, which)
    job = PartJob(run, settings, checkpoint, data, source, cluster)
    asked = asked or (cluster.workers if job.spreads or isinstance(cluster, Local) else 1)
    parts = cut_for_evaluation(source, settings, asked)
    workers = job.workers(asked, len(parts), "evaluated")
    if workers == 1 and not job.spreads:
        model = load_model(run, settings, checkpoint.name)
        return Evaluation(run, settings, model, source, metrics).scores()
    merged = MergedScores(run, settings, metrics)
    job.work(parts, workers, on_part=merged.add, metrics=list(metrics))
    return merged.scores()
