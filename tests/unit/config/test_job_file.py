import inspect
from pathlib import Path
from typing import Any

import pytest

from flambeau.cli.given import parse_data
from flambeau.config import (
    AllReduce,
    CodeRef,
    DatasetData,
    FileData,
    Hybrid,
    JobSettings,
    Local,
    OptimizerSpec,
    ParameterServer,
    Schedule,
)
from flambeau.config.job_file import JobFile, load_job_file
from flambeau.config.model_names import MODEL_NAMES
from flambeau.driver.fit import fit
from flambeau.errors import ConfigError

SMALL = "model: lenet\ntrain: data/*.parquet\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def write_job(text: str) -> Path:
        Path("job.yaml").write_text(text)
        return Path("job.yaml")

    return write_job


def complaint(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_job_file(path, overrides)
    return str(caught.value)


@pytest.mark.parametrize("url", ["s3://b/day-*.parquet", "http://h:80/a.csv?key=a=b#c"])
def test_data_may_be_a_url(write: Any, url: str) -> None:
    job = load_job_file(write("model: lenet\ntrain: data/*.parquet\n"), [f"train={url}"])
    assert job.train == FileData(path=url)
    assert load_job_file(write(f"model: lenet\ntrain: {url}\n"), []).train == FileData(path=url)
    assert parse_data(url, None, []) == FileData(path=url)


def test_the_keys_are_the_arguments_of_fit_and_those_of_the_model() -> None:
    assert set(JobFile.model_fields) == {*inspect.signature(fit).parameters, "args"}


@pytest.mark.parametrize("name", sorted(JobFile.model_fields.keys() & JobSettings.model_fields))
def test_a_setting_has_the_default_of_the_job(name: str) -> None:
    ours, jobs = JobFile.model_fields[name], JobSettings.model_fields[name]
    if name not in ("strategy", "cluster", "model", "train"):
        assert ours.default == jobs.default


@pytest.mark.parametrize("name", ["batch_size", "epochs", "max_steps", "seed"])
def test_a_number_has_the_bounds_of_the_job(name: str) -> None:
    assert JobFile.model_fields[name].metadata == JobSettings.model_fields[name].metadata


def test_the_names_of_models_are_those_of_the_models() -> None:
    from flambeau.models import MODELS

    assert set(MODEL_NAMES) == set(MODELS)


def test_models_over_fields_have_a_loss(write: Any) -> None:
    job = "model: deepfm\nargs: {fields: 2, dense: 0}\ntrain: a.parquet\n"
    assert load_job_file(write(job)).settings().loss == "bce"
    assert load_job_file(write(job + "loss: mse\n")).settings().loss == "mse"
    assert load_job_file(write(job + "step: steps:mine\n")).settings().loss is None
    assert load_job_file(write(SMALL)).settings().loss is None


def test_a_model_of_ours_is_built_by_name_on_the_worker(write: Any) -> None:
    job = load_job_file(write(SMALL + "args: {classes: 3}"))
    assert job.settings().model == CodeRef(
        path="flambeau.models:build", args={"name": "lenet", "classes": 3}, call=True
    )


def test_a_model_by_import_path_is_called_with_its_arguments(write: Any) -> None:
    job = load_job_file(write("model: my.nets:Net\nargs: {width: 3}\ntrain: x"))
    assert job.settings().model == CodeRef(path="my.nets:Net", args={"width": 3}, call=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("data/*.csv", FileData(path="data/*.csv")),
        ("[a.csv, b.csv]", FileData(path=("a.csv", "b.csv"))),
        (
            "{path: mnist, format: idx, options: {split: test}}",
            FileData(path="mnist", format="idx", options={"split": "test"}),
        ),
        ("my.data:train", DatasetData(code=CodeRef(path="my.data:train", call=True))),
        (
            "{path: my.data:train, options: {rows: 3}}",
            DatasetData(code=CodeRef(path="my.data:train", args={"rows": 3}, call=True)),
        ),
        ("s3://bucket/key", FileData(path="s3://bucket/key")),
    ],
)
def test_forms_of_data(write: Any, text: str, expected: Any) -> None:
    job = load_job_file(write(f"model: lenet\ntrain: {text}"))
    assert job.settings().train == expected


def test_a_file_that_is_there_is_no_function(write: Any) -> None:
    path = write("model: lenet\ntrain: data:rows")
    Path("data:rows").touch()
    assert load_job_file(path).train == FileData(path="data:rows")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sgd", OptimizerSpec(name="sgd")),
        ("{lr: 0.1}", OptimizerSpec(name="adam", args={"lr": 0.1})),
        (
            "{name: sgd, lr: 1e-3, groups: {'*.bias': {lr: 0}}}",
            OptimizerSpec(name="sgd", args={"lr": 1e-3}, groups={"*.bias": {"lr": 0}}),
        ),
        (
            "{gen: adam, disc: {name: sgd, lr: 0.1}}",
            {"gen": OptimizerSpec(), "disc": OptimizerSpec(name="sgd", args={"lr": 0.1})},
        ),
        ("my.optim:Own", OptimizerSpec(name="my.optim:Own")),
    ],
)
def test_forms_of_optimizers(write: Any, text: str, expected: Any) -> None:
    job = load_job_file(write(f"{SMALL}optimizer: {text}"))
    assert job.settings().optimizer == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ftrl", OptimizerSpec(name="ftrl")),
        ("{name: adagrad, lr: 0.05}", OptimizerSpec(name="adagrad", args={"lr": 0.05})),
        ("null", None),
    ],
)
def test_forms_of_the_optimizer_of_tables(write: Any, text: str, expected: Any) -> None:
    job = load_job_file(write(f"{SMALL}table_optimizer: {text}"))
    assert job.settings().table_optimizer == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all_reduce", AllReduce()),
        ("parameter_server", ParameterServer()),
        (
            "{parameter_server: {servers: 2, consistency: bounded, staleness: 2}}",
            ParameterServer(servers=2, consistency="bounded", staleness=2),
        ),
        ("{hybrid: {servers: 3}}", Hybrid(servers=3)),
    ],
)
def test_forms_of_strategies(write: Any, text: str, expected: Any) -> None:
    assert load_job_file(write(f"{SMALL}strategy: {text}")).settings().strategy == expected


@pytest.mark.parametrize("text", ["local", "{local: {}}", "{local: {workers: 1}}", "{local: null}"])
def test_forms_of_clusters(write: Any, text: str) -> None:
    assert load_job_file(write(f"{SMALL}cluster: {text}")).settings().cluster == Local(1)


def test_the_users_functions_are_references(write: Any) -> None:
    text = "loss: m:f\nstep: m:s\nschedule: m:d\ncallbacks: [m:C, {path: m:D, args: {n: 1}}]"
    settings = load_job_file(write(SMALL + text)).settings()
    assert (settings.loss, settings.step) == (CodeRef(path="m:f"), CodeRef(path="m:s"))
    assert settings.schedule == CodeRef(path="m:d")
    assert settings.callbacks == (
        CodeRef(path="m:C"),
        CodeRef(path="m:D", args={"n": 1}, call=True),
    )


def test_losses_by_task(write: Any) -> None:
    settings = load_job_file(write(SMALL + "loss: {a: bce, b: m:f}")).settings()
    assert settings.loss == {"a": "bce", "b": CodeRef(path="m:f")}


def test_a_schedule_by_its_kind(write: Any) -> None:
    assert load_job_file(write(SMALL + "schedule: cosine")).schedule == Schedule(kind="cosine")


def test_ranges_of_columns_are_written_out(write: Any) -> None:
    settings = load_job_file(write(SMALL + "inputs: {x: 'I1:I3'}\nlabel: y")).settings()
    assert settings.binding.inputs == {"x": ("I1", "I2", "I3")}
    assert settings.binding.label == "y"


def test_the_run_is_called_like_the_file(write: Any) -> None:
    assert load_job_file(write(SMALL)).run_dir == "runs/job"
    assert load_job_file(write(SMALL + "run_dir: there")).run_dir == "there"


def test_where_to_start_from(write: Any) -> None:
    whole = load_job_file(write(SMALL + "init_from: runs/a@best")).init_from
    assert whole is not None
    assert (whole.run, whole.patterns) == ("runs/a@best", None)
    part = load_job_file(write(SMALL + "init_from: {run: runs/a, patterns: [enc.*]}")).init_from
    assert part is not None
    assert part.patterns == ("enc.*",)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("epocs: 3", "unknown key 'epocs'; did you mean 'epochs'?"),
        ("epochs: 0", "epochs=0: Input should be greater than or equal to 1"),
        ("optimizer: sdg", "optimizer.name='sdg': unknown optimizer; did you mean 'sgd'?"),
        (
            "optimizer: lbfgs",
            "optimizer.name='lbfgs': it computes the loss several times a step, which a training "
            "loop does not; use a step of your own (step=) with torch.optim.LBFGS, or another "
            "optimizer",
        ),
        (
            "optimizer: {a: {name: sdg}, b: sgd}",
            "optimizer.a.name='sdg': unknown optimizer; did you mean 'sgd'?",
        ),
        (
            "optimizer: 3",
            "optimizer=3: write a name, {name: sgd, lr: 0.1}, or {submodule: optimizer}",
        ),
        ("strategy: all_reduc", "unknown key 'strategy.all_reduc'; did you mean 'all_reduce'?"),
        ("strategy: {}", "strategy={}: name one of: all_reduce, parameter_server, hybrid"),
        (
            "strategy: {hybrid: {}, parameter_server: {}}",
            "strategy={'hybrid': {}, 'parameter_server': {}}: name one of: all_reduce, "
            "parameter_server, hybrid",
        ),
        (
            "strategy: {parameter_server: {server: 2}}",
            "unknown key 'strategy.parameter_server.server'; did you mean 'servers'?",
        ),
        (
            "strategy: {parameter_server: {backup_workers: 1}}",
            "strategy.backup_workers=1 with 1 worker: give 0 to 0, so that a step has at least "
            "one gradient",
        ),
        ("table_optimizer: 3", "table_optimizer=3: write a name, or {name: adagrad, lr: 0.05}"),
        (
            "table_optimizer: adagrd",
            "table_optimizer.name='adagrd': unknown optimizer; did you mean 'adagrad'?",
        ),
        (
            "strategy: {all_reduce: {compresion: bf16}}",
            "unknown key 'strategy.all_reduce.compresion'; did you mean 'compression'?",
        ),
        (
            "cluster: {local: {worker: 2}}",
            "unknown key 'cluster.local.worker'; did you mean 'workers'?",
        ),
        ("cluster: 3", "cluster=3: Input should be a valid mapping"),
        ("label: 3", "label=3: Input should be a valid string or a valid list or a valid mapping"),
        ("inputs: {x: 3}", "inputs.x=3: Input should be a valid string or a valid list"),
        ("loss: 3", "loss=3: write a loss's name, module:function, or {task: loss}"),
        ("step: nothing", "step='nothing': write module:name"),
        ("callbacks: [3]", "callbacks.0=3: write module:name"),
        (
            "valid: 3",
            "valid=3: write a path, a list of paths, module:function, or {path:, format:}",
        ),
        (
            "valid: {path: x, format: idy}",
            "valid.format='idy': unknown format; did you mean 'idx'?",
        ),
        ("valid: {path: x, opts: {}}", "unknown key 'valid.opts'; did you mean 'options'?"),
        ("images: {mean: [0.5]}", "images={'mean': [0.5]}: mean and std go together"),
        ("metrics: auc", "metrics='auc': Input should be a valid list"),
        (
            "metrics: [gauc]",
            "metric 'gauc' needs group=, the column of those who rank (for example the user)",
        ),
        ("evaluator: true", "evaluator=True needs valid= data to evaluate on"),
        (
            "schedule: cosin",
            "schedule.kind='cosin': Input should be 'constant', 'step', 'linear', 'cosine', "
            "'polynomial' or 'torch'; did you mean 'cosine'?",
        ),
        ("init_from: {runn: x, run: y}", "unknown key 'init_from.runn'; did you mean 'run'?"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(write: Any, text: str, line: str) -> None:
    assert complaint(write(SMALL + text)) == f"job.yaml: {line}"


def test_an_unknown_model_names_the_nearest(write: Any) -> None:
    assert complaint(write("model: lenett\ntrain: x")) == (
        "job.yaml: model='lenett': unknown model; did you mean 'lenet'? (or write module:name)"
    )


def test_another_case_is_near(write: Any) -> None:
    assert "did you mean 'lenet'?" in complaint(write("model: LeNet\ntrain: x"))


def test_what_is_missing_is_said(write: Any) -> None:
    assert complaint(write("model: lenet")) == "job.yaml: 'train' is missing"


def test_all_mistakes_are_said_at_once(write: Any) -> None:
    assert len(complaint(write("model: lennet\nepocs: 3")).splitlines()) == 3


def test_a_mistake_of_the_command_line_is_said_to_be_there(write: Any) -> None:
    assert complaint(write(SMALL), "epocs=3") == (
        "command line: unknown key 'epocs'; did you mean 'epochs'?"
    )


def test_a_mistake_of_the_file_is_not_blamed_on_the_command_line(write: Any) -> None:
    assert complaint(write(SMALL + "epocs: 1"), "epochs=3").startswith("job.yaml: unknown key")


@pytest.mark.parametrize("override", ["schedule=null", "~schedule"])
def test_a_key_can_be_removed_on_the_command_line(write: Any, override: str) -> None:
    path = write(SMALL + "schedule: {kind: cosine, steps: 10}")
    assert load_job_file(path, [override]) == load_job_file(write(SMALL))


def test_an_unknown_key_is_one_also_if_it_is_null(write: Any) -> None:
    assert "unknown key 'epocs'" in complaint(write(SMALL + "epocs:"))


def test_an_override_replaces_a_value_of_the_file(write: Any) -> None:
    path = write(SMALL + "optimizer: {name: sgd, lr: 0.1}\ncluster: local")
    job = load_job_file(path, ["optimizer.lr=1e-3", "cluster.local.workers=4", "args.classes=7"])
    settings = job.settings()
    assert settings.optimizer == OptimizerSpec(name="sgd", args={"lr": 1e-3})
    assert settings.cluster == Local(4)
    assert settings.model.args["classes"] == 7
