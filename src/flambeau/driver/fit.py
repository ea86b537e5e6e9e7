"""`fit`: train a model on a cluster."""

import functools
import inspect
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar

from flambeau import errors
from flambeau.checkpoint import (
    RunDirectory,
    parse_reference,
    prune,
    repair_pointers,
    resolve,
)
from flambeau.checkpoint.new_run import new_run_directory
from flambeau.checkpoint.run_directory import explained
from flambeau.config import (
    AllReduce,
    Attached,
    Binding,
    Checkpoints,
    Cluster,
    Compute,
    EarlyStopping,
    Evaluation,
    Hybrid,
    Images,
    JobSettings,
    Loading,
    Observe,
    ParameterServer,
    Recovery,
)
from flambeau.config.job_file import JobFile
from flambeau.config.settings import nearest
from flambeau.coordination.failures import Cause, Failure
from flambeau.coordination.payloads import InitialWeights, TrainingPayload
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.data.data_loaders import is_data_loader, taken_over
from flambeau.driver.conclusion import conclude
from flambeau.driver.elsewhere import is_elsewhere
from flambeau.driver.job_packager import JobPackager
from flambeau.driver.label_mapping import with_label_map
from flambeau.driver.launching import run_topology
from flambeau.driver.observers import Memory, make_observers
from flambeau.driver.outcome import Outcome
from flambeau.driver.result import Result
from flambeau.driver.spmd import comparable, together
from flambeau.driver.topology import cluster_of, make_topology, require_room
from flambeau.errors import CheckpointError, ConfigError, WorkerFailedError, WorkerLostError
from flambeau.observe import Event, Observer, Observers
from flambeau.runs import import_folders

Resume = Literal["auto", "always", "never"] | bool
Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def _hints(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Make a function suggest the closest argument when it is called with an unknown one."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
        for name, value in kwargs.items():
            if name in known:
                continue
            hint = nearest(name, known)
            if name in ("lr", "learning_rate"):
                hint = f"give optimizer=fb.optim('adam', lr={value!r})"
            raise ConfigError(f"{function.__name__}() has no argument '{name}'; {hint}")
        return function(*args, **kwargs)

    return call


@_hints
def fit(
    model: Any,
    train: Any,
    valid: Any = None,
    *,
    features: Any = None,
    inputs: Any = None,
    label: Any = None,
    label_map: Mapping[float, float] | None = None,
    weight: str | None = None,
    keys: Sequence[str] = (),
    group: str | None = None,
    hash: Mapping[str, str] | None = None,
    crosses: Mapping[str, Sequence[str]] | None = None,
    fill: float | Mapping[str, float] | None = None,
    loss: Any = None,
    step: Any = None,
    optimizer: Any = "adam",
    table_optimizer: Any = None,
    schedule: Any = None,
    metrics: Sequence[str] = (),
    batch_size: int | None = None,
    epochs: int = 1,
    max_steps: int | None = None,
    strategy: AllReduce | ParameterServer | Hybrid | None = None,
    cluster: Cluster | None = None,
    compute: Compute | Mapping[str, Any] | None = None,
    loading: Loading | Mapping[str, Any] | None = None,
    images: Images | Mapping[str, Any] | None = None,
    checkpoints: Checkpoints | Mapping[str, Any] | None = None,
    evaluation: Evaluation | Mapping[str, Any] | None = None,
    evaluator: bool = False,
    early_stopping: EarlyStopping | Mapping[str, Any] | None = None,
    observe: Observe | Mapping[str, Any] | None = None,
    recovery: Recovery | Mapping[str, Any] | None = None,
    callbacks: Sequence[Any] = (),
    run_dir: str | Path | None = None,
    resume: Resume = "auto",
    init_from: str | Path | Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Result:
    """Train `model` on `train` with any number of processes, and return the `Result`.

    Model and data: `model` is an nn.Module, or a class or function that builds one on the workers.
    `train` and `valid` are `(x, y)` arrays or tensors, a dict of columns, a DataFrame (pandas,
    Polars, Spark) or Arrow table, a Dataset, a path or glob (Parquet, CSV, Arrow, idx, CIFAR, SVHN,
    image folder), a DataLoader, or `f(shard) -> DataLoader`.
    `features` is an `ft.Pipeline` of raw columns, a features.yaml or the folder of a saved one. It
    is fitted on `train` unless it is fitted already, and stored with runs and exports.
    `inputs`, `label`, `weight`, `keys` and `group` select columns. Strings among the inputs are
    hashed to ids (columns that share a table share a salt: `hash={"history": "item"}`), and
    `crosses` makes columns of ids from others, `{"user_x_ad": ["user", "ad"]}`. `fill` replaces
    missing numbers, by column as in `{"price": 0.0}` or by one number for all. `label_map` replaces
    labels of the data by those to learn, `{-1: 0, 1: 1}`. `loss` is a name, a torch loss, `{task:
    loss}` or `f(output, batch)`; `step=f(ctx, batch)` replaces the whole training step.
    `batch_size` is per worker and update; the default is 128, or that of a DataLoader.

    Execution: `strategy` says how replicas agree, `cluster` where processes run. The settings
    `compute`, `loading`, `images`, `checkpoints`, `evaluation`, `early_stopping`, `observe` and
    `recovery` (see `flambeau.config`; plain dicts work too) control everything else.

    The run is stored in `run_dir`. If the folder holds an earlier part of this run, that is
    resumed (`resume`). `init_from="runs/other@best"` starts from another run's weights, `{"run":
    ..., "patterns": ["encoder.*"]}` from some of them.
    """
    given = dict(locals())
    try:
        # First of all: the number of workers, and all that depends on it, follow from the cluster.
        given["cluster"] = where = cluster_of(cluster)
        folders: list[Path] = []
        if is_elsewhere(where):
            folders = [Path(run_dir or new_run_directory(_name_of(model)).path)]
            given["run_dir"] = folders[0]
        result = together(where, "fb.fit", comparable(given), partial(_fit, given), folders)
    except errors.FlambeauError as error:
        # The frames between here and where it was raised are Flambeau's, and would not help users.
        raise error.with_traceback(None) from None
    result.valid = valid
    result.attached = where if isinstance(where, Attached) else None
    result.is_driver |= is_elsewhere(where)
    return result


def _fit(given: dict[str, Any], cluster: Cluster) -> Result:
    """Run the job of `fit` in the process that drives it."""
    given = given | {"cluster": cluster}
    run_dir, model = given["run_dir"], given["model"]
    run = RunDirectory(run_dir) if run_dir is not None else new_run_directory(_name_of(model))
    with run.lock(), JobPackager(run.path, cluster) as description:
        used = (given[name] for name in ("features", "train", "valid", "observe"))
        given |= description.add_features(*used)
        settings = _settings(description, given)
        resume, init_from = given["resume"], given["init_from"]
        return run_job(run, settings, description, resume=resume, init_from=init_from)


def _settings(description: JobPackager, given: dict[str, Any]) -> JobSettings:
    """Return the settings for the arguments of `fit`, given by name."""
    if is_data_loader(given["train"]):
        given = given | taken_over(given["train"], given["batch_size"], given["loading"])
    columns = {name: given[name] for name in ("inputs", "label", "weight", "group", "fill")}
    columns |= {name: given[name] or {} for name in ("label_map", "hash", "crosses")}
    binding = Binding(**columns, keys=tuple(given["keys"]))
    values = {
        **{name: value for name, value in given.items() if name in JobSettings.model_fields},
        "binding": binding,
        "model": description.model(given["model"]),
        "train": description.data(given["train"], "train", binding),
        "valid": description.data(given["valid"], "valid", binding),
        "loss": description.loss(given["loss"], given["model"], given["step"]),
        "step": description.code(given["step"], "step"),
        "optimizer": description.optimizer(given["optimizer"]),
        "table_optimizer": description.optimizer(given["table_optimizer"]),
        "schedule": description.schedule(given["schedule"]),
        "metrics": tuple(given["metrics"]),
        "callbacks": description.callbacks(given["callbacks"]),
    }
    return JobSettings(**{name: value for name, value in values.items() if value is not None})


def run_job(
    run: RunDirectory,
    settings: JobSettings,
    description: JobPackager,
    *,
    resume: Resume = "auto",
    init_from: str | Path | Mapping[str, Any] | None = None,
    watching: Sequence[Observer] = (),
) -> Result:
    """Run a packaged job in its (locked) directory; the observers `watching` get its events."""
    with explained(run.path, own_files=True):
        return _run_job(run, settings, description, resume, init_from, watching)


def _run_job(
    run: RunDirectory,
    settings: JobSettings,
    description: JobPackager,
    resume: Resume,
    init_from: str | Path | Mapping[str, Any] | None,
    watching: Sequence[Observer],
) -> Result:
    require_room(settings)
    if isinstance(init_from, str | Path):
        init_from = {"run": str(init_from)}
    initial = dict(init_from or {})
    settings, recognised = with_label_map(run, settings, description.packer)
    goes_on = run.prepare(settings.model_dump(mode="json"), resume)
    run.remove_leftovers()
    repair_pointers(run)
    description.packer.write(run.code)
    description.write_features(run.code)
    import_folders.remember(run.code)
    start = _initial_checkpoint(initial["run"]) if initial and not goes_on else None
    run.report.unlink(missing_ok=True)
    run.stacks_request.unlink(missing_ok=True)
    memory = Memory()
    forgotten = memory.recall(run)
    observer = Observers([make_observers(settings.observe, run, memory), *watching])
    payload = TrainingPayload(
        settings.model_dump(mode="json"),
        str(run.path.resolve()),
        _initial_weights(initial, start),
    )
    started = time.time()
    try:
        for text in filter(None, (recognised, forgotten)):
            observer.observe(Event("warning", started, {"text": text}))
        with _reported(partial(conclude, run, settings, observer, memory, started), memory):
            outcome = run_topology(
                make_topology(run, settings, resumes=goes_on, initial=start),
                settings.cluster,
                observer,
                settings.recovery,
                payload,
                description.fds,
                description.frames,
                graceful=True,
            )
        prune(run, settings.checkpoints.keep)
        conclude(run, settings, observer, memory, started, outcome)
    finally:
        observer.close()
    _raise_if_failed(outcome, run, memory, settings.recovery)
    return Result(run, settings, outcome, memory)


@contextmanager
def _reported(conclude: Callable[[Outcome], None], memory: Memory) -> Iterator[None]:
    """Report an error of the cluster as the end of the job, and raise it."""
    try:
        yield
    except Exception as error:
        known = isinstance(error, errors.FlambeauError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        spec = RoleSpec(Role.WORKER, 0, 1, 0, 1, 0, 0)  # no role has failed
        failure = Failure(spec, Cause.USER_ERROR, text)
        try:
            conclude(Outcome(failure=failure, restarts=memory.restarts))
        except OSError as refused:  # perhaps a full disk, which may also have ended the job
            error.add_note(f"this could not be written to report.json: {refused}")
        raise


def _initial_weights(initial: Mapping[str, Any], start: Path | None) -> InitialWeights | None:
    if not initial:
        return None
    name = None if start is None else start.name
    return InitialWeights(initial["run"], name, initial.get("patterns"))


def _initial_checkpoint(reference: str) -> Path:
    """Return the checkpoint to start from; raise an error here, before processes are started."""
    path, which = parse_reference(reference)
    if not path.is_dir():
        raise CheckpointError(f"init_from: there is no run {path}")
    return resolve(RunDirectory(path), which).resolve()


def _raise_if_failed(
    outcome: Outcome, run: RunDirectory, memory: Memory, recovery: Recovery
) -> None:
    if outcome.failure is not None:
        raise_failure(outcome.failure, _ways_on(run, recovery, outcome.failure))
    if outcome.interrupted is signal.SIGINT:
        raise KeyboardInterrupt(
            f"stopped at step {memory.step}; call again with run_dir={str(run.path)!r} to resume"
        )
    if outcome.interrupted is not None:
        raise SystemExit(128 + outcome.interrupted)


def _ways_on(run: RunDirectory, recovery: Recovery, failure: Failure) -> str:
    """Return what to do about a lost process, as the end of a message."""
    does = "resumes from the last checkpoint"
    if not run.has_trained():
        does = "starts from the beginning, since there is no checkpoint yet"
    automatic = "; with recovery.max_restarts=n the job restarts automatically, up to n times"
    helps = not recovery.max_restarts and failure.replaceable
    return f". The same call {does}{automatic if helps else ''}"


def raise_failure(failure: Failure, ways_on: str = "") -> NoReturn:
    """Raise a role's failure: `WorkerFailedError` if it has a traceback, else its own type.

    `ways_on` is added to the message if a process was lost.
    """
    if failure.traceback:
        raise WorkerFailedError(f"{failure.spec.name} failed{failure.where}", failure.traceback)
    kind = getattr(errors, failure.error, WorkerLostError) if failure.error else WorkerLostError
    raise kind(failure.message + failure.where + (ways_on if kind is WorkerLostError else ""))


def _name_of(model: Any) -> str:
    kind = model if isinstance(model, type) else type(model)
    name = getattr(model, "__name__", kind.__name__).lower()
    return name if name.isidentifier() else "model"


def run_file(job: JobFile, folder: Path) -> Result:
    """Run the job of a file; modules in `folder` (that of the job file) can be imported."""
    sys.path.insert(0, str(folder.resolve()))
    given = None if "cluster" not in job.model_fields_set else job.cluster.chosen
    arguments = comparable({name: getattr(job, name) for name in JobFile.model_fields})
    run_dir = Path(job.run_dir)
    where, drive = cluster_of(given), partial(_run_file, job, run_dir)
    result = together(where, "flambeau train", arguments, drive, [run_dir])
    result.is_driver |= is_elsewhere(where)
    return result


def _run_file(job: JobFile, run_dir: Path, cluster: Cluster) -> Result:
    """Run the job of a file in the process that drives it."""
    settings = job.settings(cluster=cluster)
    run = RunDirectory(run_dir)
    initial = job.init_from.model_dump() if job.init_from else None
    with run.lock(), JobPackager(run.path, cluster) as description:
        given = description.add_features(job.features, settings.train, settings.valid, job.observe)
        settings = description.with_sizes(settings.model_copy(update=given))
        return run_job(run, settings, description, resume=job.resume, init_from=initial)
