"""Stages of `flambeau criteo`: prepare, train, evaluate, predict. Each can be resumed."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import flambeau.features as ft
from flambeau.checkpoint import RunDirectory, best, resolve
from flambeau.checkpoint.durable import write_atomically
from flambeau.cli.criteo.jobs import DENSE_BELOW, make_job, replicates, small_fields
from flambeau.cli.criteo.logs import Logs
from flambeau.cli.criteo.records import PREPARED, RAW, Records, plain
from flambeau.config import Cluster, FileData, Local
from flambeau.config.job_file import JobFile
from flambeau.data.sources.text.row_faults import WAY_OUT
from flambeau.errors import ConfigError, DataError, RunDirectoryError
from flambeau.features.fitting import memory_bytes
from flambeau.features.pipeline import Pipeline
from flambeau.features.preparing.prepared import Prepared, open_prepared

LINES = "flambeau.cli.criteo.iteration_lines:IterationLines"
_WAY_OUT = "to leave out bad rows and count them: --on-bad-row skip"
#: Stages in order.
STAGES = ("prepare", "train", "evaluate", "predict")


@final
@dataclass(frozen=True)
class Request:
    """Arguments of the command. `cluster` has values as in a job file."""

    logs: Logs
    out: Path
    model: str = "dlrm"
    prepares: bool = True
    min_count: int = 1
    max_size: int | None = None
    memory: str | None = None
    cluster: dict[str, Any] = field(default_factory=dict)
    workers: int | None = None
    target_auc: float | None = None
    evaluate_every: int | None = None
    lines: int | None = None
    overrides: tuple[str, ...] = ()

    @property
    def way(self) -> str:
        """`PREPARED` or `RAW`: training from prepared features, or directly from the logs."""
        return PREPARED if self.prepares else RAW

    @property
    def folder(self) -> Path:
        """Folder of the run and its results."""
        return self.out if self.prepares else self.out / "no-prepare"

    @property
    def features(self) -> Path:
        """Folder of the prepared features, or of the hashing pipeline."""
        return self.out / "features" if self.prepares else self.folder / "pipeline"


@final
class Stages:
    """Executor of stages; a stage that was completed before for the same request is skipped."""

    def __init__(self, asked: Request, records: Records, tell: Callable[[str], None]) -> None:
        self._asked, self._records, self._tell = asked, records, tell
        self._run = RunDirectory(asked.folder / "run")

    def check(self) -> None:
        """Validate the settings of all stages before the first one, which may take long, starts."""
        memory_bytes(self._asked.memory)
        logs = self._asked.logs
        data = {"train": logs.train, "valid": logs.valid, **self._watching(None)}
        self._make_job(data).settings("flambeau criteo", self._job_cluster())

    def do(self, stage: str) -> None:
        """Execute one stage."""
        stages = {
            "prepare": self._prepare,
            "train": self._train,
            "evaluate": self._evaluate,
            "predict": self._predict,
        }
        with _naming_options():
            stages[stage]()

    # Preparing

    def _prepare(self) -> None:
        asked = self._asked
        if not asked.prepares:
            self._tell("prepare: left out; texts are hashed as the logs are read")
            return
        pipeline = ft.criteo(min_count=asked.min_count, max_size=asked.max_size)
        request = {
            "data": asked.logs.all.model_dump(mode="json"),
            "files": _files(asked.logs.all),
            "split": asked.logs.split.dump(),
            "operations": [operation.dump() for operation in pipeline.operations],
        }
        if self._records.is_done("prepare", request) and self._is_as_it_was():
            self._tell(f"prepare: done before, in {asked.features}")
            return
        self._tell(f"prepare: features of the logs, in {asked.features}")
        with self._records.stage("prepare", request) as found:
            parts = pipeline.fit_transform(
                asked.logs.all,
                split=asked.logs.split,
                out=asked.features,
                cluster=self._preparing(),
                memory=asked.memory,
            )
            found |= {"subsets": parts.rows, "rows": sum(parts.rows.values())}
            found["sizes"] = pipeline.sizes_
            found["written"] = _written(parts)

    def _is_as_it_was(self) -> bool:
        written = self._records["prepare"].get("written")
        try:
            return bool(written == _written(open_prepared(self._asked.features)))
        except (OSError, ValueError):
            return False

    def _preparing(self) -> Cluster | None:
        """Return the cluster for preparing; None: all cores of this machine."""
        cluster: Cluster = self._job_cluster()
        if isinstance(cluster, Local) and self._asked.workers is None:
            return None
        return cluster

    def _job_cluster(self) -> Cluster:
        from flambeau.config.choices import ClusterChoice

        cluster: Cluster = ClusterChoice.parse(self._asked.cluster).chosen
        return cluster

    # Training

    def _train(self) -> None:
        from flambeau.driver.fit import run_file

        asked = self._asked
        job = self._job()
        request = {"job": job.model_dump(mode="json"), "features": self._features_id()}
        if self._records.is_done("train", request) and self._run.has_trained():
            self._tell(f"train: done before, in {self._run.path}")
            return
        self._tell(f"train: {asked.model}, in {self._run.path}")
        with self._records.stage("train", request) as found:
            result = run_file(job, Path.cwd())
            found |= {"rows": result.report["rows"]["applied"], "step": result.report["step"]}
            found |= {"metrics": result.metrics, "stopped_early": result.report["stopped_early"]}
            if result.is_driver:
                self._export()

    def _job(self) -> JobFile:
        asked, logs = self._asked, self._asked.logs
        if asked.prepares:
            parts = self._parts()
            features = self._of_prepared(parts)
        else:
            _save_hashing(asked.features, logs.train)
            features = {"train": logs.train, "valid": logs.valid, "features": str(asked.features)}
            if asked.min_count > 1:
                admission = {"kind": "min_count", "count": asked.min_count}
                features["args"] = {"table": {"admission": admission}}
        features |= self._watching(self._records["prepare"].get("subsets", {}).get("train"))
        if not asked.prepares:
            return self._make_job(features)
        job = self._make_job(features, parts.sizes)
        if self._has_no_tables(job, parts):
            job = self._make_job({**features, "strategy": {"all_reduce": {}}}, parts.sizes)
        return job

    def _has_no_tables(self, job: JobFile, parts: Prepared) -> bool:
        """Return whether all fields are replicated, so that servers would have nothing to do."""
        if any(text.lstrip("~").startswith("strategy") for text in self._asked.overrides):
            return False
        small = small_fields(job.args, parts.sizes)
        return bool(small) and len(small) == len(parts.sizes)

    def _make_job(
        self, features: dict[str, Any], sizes: Mapping[str, int] | None = None
    ) -> JobFile:
        asked = self._asked
        place, overrides = self._run.path, asked.overrides
        return make_job(asked.model, features, place, asked.cluster, overrides, sizes or {})

    def _watching(self, rows: int | None) -> dict[str, Any]:
        """Return the job's keys for evaluations and lines; `rows` is the number in an epoch."""
        asked, found = self._asked, dict[str, Any]()
        if asked.target_auc is not None:
            found["early_stopping"] = {"metric": "auc", "target": asked.target_auc}
        if asked.evaluate_every is not None:
            found["evaluation"] = {"every_steps": asked.evaluate_every}
        if asked.lines is not None:
            args = {"every": asked.lines, "rows": rows}
            found["callbacks"] = [{"path": LINES, "args": args}]
        return found

    def _of_prepared(self, parts: Prepared) -> dict[str, Any]:
        """Return the job's keys for prepared features."""
        found: dict[str, Any] = {"train": parts.train, "valid": parts.valid}
        if replicates(self._asked.model):
            found["args"] = {"sizes": "features", "dense_below": DENSE_BELOW}
        return found

    def _parts(self) -> Prepared:
        try:
            parts = open_prepared(self._asked.features)
        except ValueError:
            raise ConfigError(
                f"there are no features in {self._asked.features}: run --only prepare first"
            ) from None
        if parts.valid is None or parts.test is None:
            raise DataError(
                f"{self._asked.features} has {parts.rows['valid']} rows to validate with and "
                f"{parts.rows['test']} to test with, and at least one of each is needed: give logs "
                "with more rows"
            )
        return parts

    def _features_id(self) -> Any:
        return self._records["prepare"].get("written") if self._asked.prepares else None

    def _export(self) -> None:
        """Export the best model, replacing an earlier export."""
        from flambeau.runs.run_export import export_run
        from flambeau.runs.trained_run import read_settings

        out = self._asked.folder / "export"
        shutil.rmtree(out, ignore_errors=True)
        name = self._chosen()
        export_run(self._run, read_settings(self._run), name, out)
        why = "the newest: the rows to validate with have no AUC"
        self._tell(f"export: {name}, {'the best by AUC' if best(self._run) else why}, in {out}")

    def _chosen(self) -> str:
        """Return the best checkpoint, or the newest if no metric was defined."""
        return resolve(self._run, "best" if best(self._run) else "latest").name

    # Testing

    def _evaluate(self) -> None:
        from flambeau.driver.parts.evaluate import evaluate_run

        run, settings, checkpoint = self._trained()
        data = self._test()
        request = {"checkpoint": str(checkpoint), "data": _shown(data), "train": self._trained_id()}
        if self._records.is_done("evaluate", request):
            self._tell("evaluate: done before")
            return
        self._tell(f"evaluate: {checkpoint} on the rows to test with")
        names = tuple(dict.fromkeys(["auc", "accuracy", "logloss", *settings.metrics]))
        with self._records.stage("evaluate", request) as found:
            scores = evaluate_run(
                run, settings, checkpoint, data, names, self._processes(), self._elsewhere()
            )
            found |= {"rows": scores.rows, "metrics": scores.metrics}
            text = json.dumps({"checkpoint": checkpoint, **scores.metrics}, indent=1)
            write_atomically(self._asked.folder / "evaluation.json", text.encode())

    def _predict(self) -> None:
        """Predict raw rows with the exported model."""
        from flambeau.driver.parts.predict_export import predict_export
        from flambeau.runs.prediction import PredictionOptions

        asked = self._asked
        _, _, checkpoint = self._trained()
        data = {"test": asked.logs.test}
        if asked.logs.unlabelled is not None:
            data["unlabelled"] = asked.logs.unlabelled
        export, out = asked.folder / "export", asked.folder / "predictions"
        shown = {name: _shown(each) for name, each in data.items()}
        request = {"checkpoint": checkpoint, "data": shown, "train": self._trained_id()}
        if self._records.is_done("predict", request) and out.is_dir():
            self._tell(f"predict: done before, in {out}")
            return
        if self._records["predict"].get("asked", plain(request)) != plain(request):
            shutil.rmtree(out, ignore_errors=True)  # predictions of another model
        self._tell(f"predict: {export}, from raw rows, into {out}")
        options, cluster = PredictionOptions(asked.workers), self._elsewhere()
        with self._records.stage("predict", request) as found:
            found["rows"] = sum(
                predict_export(export, each, out / name, options, cluster=cluster)
                for name, each in data.items()
            )

    def _trained(self) -> Any:
        from flambeau.cli.given import open_run

        if not self._records["train"].get("done"):
            raise ConfigError(f"there is no trained model in {self._run.path}: run --only train")
        run, settings, _ = open_run(str(self._run.path))
        return run, settings, self._chosen()

    def _trained_id(self) -> Any:
        return self._records["train"].get("asked")

    def _test(self) -> Any:
        return self._parts().test if self._asked.prepares else self._asked.logs.test

    def _processes(self) -> int | None:
        """Return the number of processes that evaluate on this machine, by default one per core."""
        from flambeau.clusters.control_groups import count_cores

        if self._elsewhere() is not None:
            return None
        return self._asked.workers or count_cores()

    def _elsewhere(self) -> Cluster | None:
        cluster = self._job_cluster()
        return None if isinstance(cluster, Local) else cluster


@contextmanager
def _naming_options() -> Iterator[None]:
    """Replace names of options of `fit` and of readers in errors by this command's options."""
    try:
        yield
    except (DataError, RunDirectoryError) as error:
        text = re.sub(r"(another|new|check) run_dir\b", r"\1 --out", str(error))
        text = text.replace(WAY_OUT, _WAY_OUT)
        if text == str(error):
            raise
        raise type(error)(text) from None


def _written(parts: Prepared) -> str:
    """Return text that identifies the prepared features."""
    from flambeau.data.prepared_files import PREPARED as FILE

    return (parts.folder / FILE).read_text()


def _files(data: FileData) -> list[Any]:
    """Return the local files of data, with sizes and times that show whether they have changed."""
    paths = [data.path] if isinstance(data.path, str) else data.path
    known = [(path, os.stat(path)) for path in paths if os.path.exists(path)]
    return [[path, status.st_size, status.st_mtime_ns] for path, status in known]


def _shown(data: Any) -> Any:
    return data.model_dump(mode="json") if isinstance(data, FileData) else str(data)


def _save_hashing(folder: Path, train: FileData) -> None:
    """Save the pipeline that takes logarithms and hashes texts; it needs no statistics."""
    pipeline = ft.criteo(vocabulary=False).fit(train)
    if not folder.is_dir() or Pipeline.load(folder).digest != pipeline.digest:
        pipeline.save(folder)
