"""`actionType:train`, which runs a job with Angel's arguments in Flambeau."""

from collections.abc import Sequence
from pathlib import Path
from typing import final

from flambeau.checkpoint import RunDirectory, lease, resolve
from flambeau.checkpoint.new_run import new_run_directory
from flambeau.checkpoint.os_errors import require_writable
from flambeau.compat.angel import rows, saved
from flambeau.compat.angel.decay import EpochDecay
from flambeau.compat.angel.losses import LABEL
from flambeau.compat.angel.model import AngelModel, load
from flambeau.compat.angel.words import EVALS, AngelJob
from flambeau.config import (
    Binding,
    Checkpoints,
    Compute,
    Evaluation,
    JobSettings,
    Local,
    OptimizerSpec,
    ParameterServer,
    Schedule,
    Spark,
)
from flambeau.driver.fit import run_job
from flambeau.driver.job_packager import JobPackager
from flambeau.driver.label_mapping import recognised
from flambeau.driver.result import Result
from flambeau.errors import ConfigError
from flambeau.observe import Observer
from flambeau.tables.saved.mapped import open_tables

MOMENTUM = 0.9
#: Settings of a Spark session for the numbers of processes, as in Angel's jobs.
IN_SESSION = {"workers": "spark.executor.instances", "servers": "spark.ps.instances"}


@final
class Training:
    """A job that is ready to run: its model is loaded, and its data fits the model."""

    def __init__(self, job: AngelJob) -> None:
        self._job = job = sized_by_session(job) if job.cluster == "spark" else job
        self._output = output_file(job)
        # Checked now, not after the training.
        if self._output is not None:
            require_writable(self._output)
        if job.angel_model_output_path:
            require_writable(Path(job.angel_model_output_path) / saved.DENSE)
        self.model: AngelModel = load(job.torch_model_path, job.angel_model_input_path or None)
        self._form = rows.data_format(job, self.model.contract)
        for path in filter(None, (job.train_input, job.validate_input)):
            rows.check_form(path, self._form, self.model.contract)
        #: Mapping of the data's labels; if the job has none, it is detected from the data.
        self.label_map = job.label_map or recognised(
            rows.files(job, job.train_input, self._form), (LABEL,)
        )
        given = [path for path in (job.train_input, job.validate_input) if path]
        dim = self.model.contract.input_dim
        #: Numbers of rows of the training data (before a split) and of the validation data.
        sources = [rows.open_files(rows.files(job, path, self._form)) for path in given]
        self.rows = [rows.check_rows(source, dim) for source in sources]

    def run(self, watching: Sequence[Observer] = ()) -> Result:
        """Train, write the outputs that the job names, and return the result."""
        run = self._run_directory()
        with run.lock(), JobPackager(run.path) as description:
            settings = self._settings(description)
            result = run_job(run, settings, description, resume="never", watching=watching)
        self._write(run, result)
        return result

    def _run_directory(self) -> RunDirectory:
        if self._job.run_dir:
            return RunDirectory(self._job.run_dir)
        return new_run_directory(Path(self._job.torch_model_path).stem)

    def _settings(self, description: JobPackager) -> JobSettings:
        job = self._job
        train, valid = rows.train_and_held_out(job, self._form)
        dense, tables = optimizers(job.optimizer, job.step_size)
        decay = f"{EpochDecay.__module__}:{EpochDecay.__qualname__}"
        return JobSettings(
            model=description.model(self.model),
            train=train,
            valid=valid,
            binding=Binding(label=LABEL, label_map=self.label_map),
            loss=description.code(self.model.loss, "loss"),
            optimizer=dense,
            table_optimizer=tables,
            schedule=Schedule(
                kind="torch", scheduler=decay, args={"decay": job.decay}, unit="epoch"
            ),
            metrics=tuple(dict.fromkeys(EVALS[name] for name in job.evals)),
            batch_size=job.batch_size,
            epochs=job.num_epoch,
            seed=job.seed,
            strategy=ParameterServer(
                consistency="asynchronous" if job.async_ else "synchronous", servers=job.servers
            ),
            cluster=Spark(job.workers) if job.cluster == "spark" else Local(job.workers),
            compute=Compute(device="cpu"),
            checkpoints=Checkpoints(keep=1),
            evaluation=Evaluation(train=True),
        )

    def _write(self, run: RunDirectory, result: Result) -> None:
        job, dense = self._job, result.model.dense()
        with lease(resolve(run, "latest")) as checkpoint:
            tables = open_tables(checkpoint)
            if job.angel_model_output_path:
                saved.write_folder(dense, tables, Path(job.angel_model_output_path))
            if self._output is not None:
                saved.write_torch(dense, tables, Path(job.torch_model_path), self._output)


def optimizers(name: str, rate: float) -> tuple[OptimizerSpec, OptimizerSpec]:
    """Return Angel's optimizer for dense weights, and for tables."""
    if name == "momentum":
        args = {"lr": rate, "momentum": MOMENTUM}
        return OptimizerSpec(name="sgd", args=args), OptimizerSpec(name="momentum", args=args)
    spec = OptimizerSpec(name=name, args={"lr": rate})
    return spec, spec


def sized_by_session(job: AngelJob) -> AngelJob:
    """Return the job with the session's numbers of workers and servers, unless it sets its own."""
    from flambeau.clusters.spark.cluster import session_of, setting

    session = session_of(Spark())
    asked = {name: setting(session, key, "") for name, key in IN_SESSION.items()}
    found = {name: n for name, n in asked.items() if n and name not in job.model_fields_set}
    return AngelJob.parse({**job.model_dump(by_alias=True), **found}, "the Spark session")


def output_file(job: AngelJob) -> Path | None:
    """Return the model file to write, or None; in a folder it gets the original file's name."""
    if not job.torch_output_model_path:
        return None
    out, original = Path(job.torch_output_model_path), Path(job.torch_model_path)
    path = out / original.name if out.is_dir() else out
    if path.resolve() == original.resolve():
        raise ConfigError(f"torchOutputModelPath:{out} is the model file itself; use another name")
    return path
