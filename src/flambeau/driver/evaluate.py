"""Metrics of a run's checkpoint, by this process or by several."""

from typing import Any

from flambeau.checkpoint import RunDirectory, resolve
from flambeau.config import JobSettings
from flambeau.driver.part_job import PartJob
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
    workers: int = 1,
) -> Scores:
    """Return the metrics of a checkpoint on `data`, or on the job's validation data.

    Several workers evaluate parts of the data, whose metrics are merged.
    """
    if workers < 1:
        raise ConfigError(f"workers={workers}: give at least 1")
    source = open_given(run, settings, data)
    checkpoint = resolve(run, which)
    job = PartJob(run, settings, checkpoint, data, source)
    parts = cut_for_evaluation(source, settings, workers)
    workers = job.workers(workers, len(parts), "evaluated")
    if workers == 1:
        model = load_model(run, settings, checkpoint.name)
        return Evaluation(run, settings, model, source, metrics).scores()
    merged = MergedScores(run, settings, metrics)
    job.work(parts, workers, on_part=merged.add, metrics=list(metrics))
    return merged.scores()
