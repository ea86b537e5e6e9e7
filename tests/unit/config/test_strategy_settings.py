"""Strategies: what goes together, and what is said when it does not."""

from typing import Any

import pytest

from flambeau.config import (
    AllReduce,
    CodeRef,
    Compute,
    FileData,
    Hybrid,
    JobSettings,
    Local,
    ParameterServer,
    optim,
)
from flambeau.config.plural import number_of
from flambeau.errors import ConfigError


def job(**settings: Any) -> JobSettings:
    return JobSettings(model=CodeRef(path="m:Net"), train=FileData(path="x"), **settings)


def complaint(kind: Any, **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        kind(**settings)
    return str(caught.value)


AT_LEAST = "Input should be greater than or equal to"


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (AllReduce, {"local_sgd": 0}, f"local_sgd=0: {AT_LEAST} 1"),
        (AllReduce, {"bucket_mb": 0}, "bucket_mb=0: Input should be greater than 0"),
        (
            AllReduce,
            {"compression": "power"},
            "compression='power': Input should be 'none', 'fp16', 'bf16' or 'powersgd'; "
            "did you mean 'powersgd'?",
        ),
        (
            AllReduce,
            {"local_sgd": 2, "compression": "fp16"},
            "local_sgd exchanges weights, not gradients; leave compression out",
        ),
        (ParameterServer, {"server": 2}, "unknown key 'server'; did you mean 'servers'?"),
        (ParameterServer, {"servers": 0}, f"servers=0: {AT_LEAST} 1"),
        (ParameterServer, {"backup_workers": -1}, f"backup_workers=-1: {AT_LEAST} 0"),
        (
            ParameterServer,
            {"consistency": "bounded", "staleness": -1},
            f"staleness=-1: {AT_LEAST} 0",
        ),
        (ParameterServer, {"timeout": 0}, "timeout=0: Input should be greater than 0"),
        (
            ParameterServer,
            {"consistency": "bound"},
            "consistency='bound': Input should be 'synchronous', 'bounded' or 'asynchronous'; "
            "did you mean 'bounded'?",
        ),
        (
            ParameterServer,
            {"compression": "powersgd"},
            "compression='powersgd': Input should be 'none', 'fp16' or 'bf16'",
        ),
        (
            ParameterServer,
            {"non_finite": "drop"},
            "non_finite='drop': Input should be 'fail' or 'skip'",
        ),
        (
            ParameterServer,
            {"consistency": "asynchronous", "backup_workers": 1},
            "backup_workers is for synchronous training; asynchronous workers do not wait for "
            "each other",
        ),
        (ParameterServer, {"staleness": 9}, "staleness is for consistency='bounded'"),
        (
            ParameterServer,
            {"consistency": "asynchronous", "staleness": 1},
            "staleness is for consistency='bounded'",
        ),
        (
            Hybrid,
            {"consistency": "bounded"},
            "consistency='bounded': Input should be 'synchronous' or 'asynchronous'",
        ),
        (Hybrid, {"servers": 0}, f"servers=0: {AT_LEAST} 1"),
        (Hybrid, {"timeout": -1}, "timeout=-1: Input should be greater than 0"),
        (Hybrid, {"server": 1}, "unknown key 'server'; did you mean 'servers'?"),
    ],
)
def test_a_wrong_setting_is_explained(kind: Any, settings: Any, message: str) -> None:
    assert complaint(kind, **settings) == message


@pytest.mark.parametrize("consistency", ["synchronous", "asynchronous", "bounded"])
def test_the_default_staleness_may_be_written_out(consistency: Any) -> None:
    # As in the job file that a run keeps, where every setting is.
    spelled = ParameterServer(consistency=consistency).model_dump()
    assert ParameterServer(**spelled) == ParameterServer(consistency=consistency)


@pytest.mark.parametrize(
    ("strategy", "lockstep"),
    [
        (ParameterServer(), True),
        (ParameterServer(consistency="bounded"), False),
        (ParameterServer(consistency="asynchronous"), False),
        (Hybrid(), True),
        (Hybrid(consistency="synchronous"), True),
    ],
)
def test_whether_all_workers_make_the_same_steps(strategy: Any, lockstep: bool) -> None:
    assert strategy.lockstep is lockstep


def test_the_dense_half_of_a_hybrid_has_its_settings() -> None:
    hybrid = Hybrid(compression="bf16", sync_batch_norm=True, bucket_mb=5.0, find_unused=True)
    assert hybrid.dense == AllReduce(
        compression="bf16", sync_batch_norm=True, bucket_mb=5.0, find_unused=True
    )


@pytest.mark.parametrize(
    "strategy", [AllReduce(local_sgd=3), ParameterServer(servers=2), Hybrid(servers=2)]
)
def test_a_jobs_strategy_comes_back_from_plain_values(strategy: Any) -> None:
    settings = job(strategy=strategy)
    assert JobSettings.parse(settings.model_dump(mode="json")).strategy == strategy


@pytest.mark.parametrize("given", ["parameter_server", 3, {"kind": "parameter_servr"}])
def test_what_is_no_strategy_is_told_what_is(given: Any) -> None:
    assert complaint(job, strategy=given) == (
        f"strategy={given!r}: give AllReduce(...), ParameterServer(...) or Hybrid(...)"
    )


@pytest.mark.parametrize(("backup", "workers"), [(1, 1), (2, 2), (5, 3)])
def test_there_are_fewer_backup_workers_than_workers(backup: int, workers: int) -> None:
    strategy = ParameterServer(backup_workers=backup)
    assert complaint(job, strategy=strategy, cluster=Local(workers)) == (
        f"strategy.backup_workers={backup} with {number_of(workers, 'worker')}: give 0 to "
        f"{workers - 1}, so that a step has at least one gradient"
    )
    job(strategy=strategy, cluster=Local(backup + 1))


@pytest.mark.parametrize("strategy", [ParameterServer(), Hybrid()])
def test_several_optimizers_need_all_reduce(strategy: Any) -> None:
    several = {"gen": optim("adam"), "disc": optim("sgd")}
    assert complaint(job, strategy=strategy, optimizer=several) == (
        "several optimizers need AllReduce: servers apply one update a step"
    )
    job(strategy=AllReduce(), optimizer=several)


def test_layer_norms_need_whole_weights() -> None:
    assert complaint(job, strategy=ParameterServer(), optimizer=optim("lamb")) == (
        "optimizer='lamb' needs the norm of each whole weight, and servers have ranges that cut "
        "through weights: use Hybrid (tables stay on servers), AllReduce, or adam"
    )
    job(strategy=Hybrid(), optimizer=optim("lamb", lr=30.0), table_optimizer=optim("sgd", lr=16.0))
    job(strategy=AllReduce(), optimizer=optim("lamb"))


def test_layer_norms_are_not_for_tables() -> None:
    said = complaint(job, table_optimizer=optim("lamb"))
    assert "'lamb' needs the norm of a whole weight, and tables update single rows" in said


def test_a_hybrid_cannot_clip_the_norm_of_all_gradients() -> None:
    assert complaint(job, strategy=Hybrid(), compute=Compute(clip_norm=1.0)) == (
        "compute.clip_norm needs the norm of all gradients, which no process has with Hybrid: use "
        "clip= of the table optimizer and clip_value, or another strategy"
    )
    job(strategy=Hybrid(), compute=Compute(clip_value=1.0))
    job(strategy=ParameterServer(), compute=Compute(clip_norm=1.0))


def test_the_optimizer_of_tables_must_be_for_tables() -> None:
    assert complaint(job, table_optimizer=optim("radam")).endswith(
        ": 'radam' is not an optimizer for tables; did you mean 'adam'?"
    )
    assert complaint(job, table_optimizer=optim("torch.optim:SGD")).endswith(
        ": 'torch.optim:SGD' is not an optimizer for tables; known: adagrad, adam, adamw, ftrl, "
        "momentum, nesterov, rmsprop, rowwise_adagrad, sgd"
    )


def test_tables_have_no_groups_of_parameters() -> None:
    said = complaint(job, table_optimizer=optim("sgd", groups={"*": {"lr": 0.1}}))
    assert said.endswith("groups are for parameters by name; give tables optimizers of their own")
