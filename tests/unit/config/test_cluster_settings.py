"""Data and clusters that do not go together."""

from pathlib import Path
from typing import Any

import pytest

from flambeau.clusters.registry import open_cluster
from flambeau.config import (
    ArrayData,
    Attached,
    CodeRef,
    FileData,
    JobSettings,
    Local,
    Ray,
    RemoteCluster,
    Spark,
    SpooledData,
    Ssh,
)
from flambeau.config.choices import ClusterChoice
from flambeau.config.job_file import JobFile
from flambeau.errors import ConfigError

FRAME = SpooledData(name="train", columns=("x",))
ARRAYS = ArrayData(columns={})
FILES = FileData(path="rows.parquet")


class Own(RemoteCluster):
    """A cluster of somebody else's."""

    queue: str = "short"


def settings(**values: Any) -> JobSettings:
    return JobSettings(model=CodeRef(value="m"), loss="mse", **values)


@pytest.mark.parametrize("valid", [FILES, ARRAYS])
def test_frames_files_and_arrays_on_spark(valid: Any) -> None:
    assert settings(train=FRAME, valid=valid, cluster=Spark(2)).cluster.workers == 2


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"train": FRAME}, r"give cluster=fb\.Spark"),
        ({"train": FILES, "valid": FRAME, "cluster": Local(2)}, r"give cluster=fb\.Spark"),
        (
            {"train": FRAME, "valid": FRAME, "evaluator": True, "cluster": Spark(2)},
            "spread over the workers",
        ),
    ],
)
def test_what_does_not_go_together(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        settings(**values)


def test_the_cluster_comes_back_from_a_file() -> None:
    for cluster in (Local(3), Spark(3, cores_per_worker=2), Spark(3), Own(workers=2, queue="long")):
        dumped = settings(train=FILES, cluster=cluster).model_dump(mode="json")
        assert JobSettings.parse(dumped).cluster == cluster


@pytest.mark.parametrize(
    ("saved", "cluster"),
    [
        ({"workers": 2, "threads_per_worker": None}, Local(2)),
        ({"workers": 2, "cores_per_worker": None, "host": "a", "carry_mb": 1}, None),
    ],
)
def test_the_cluster_of_a_run_before_kinds_had_names(saved: Any, cluster: Any) -> None:
    loaded = settings(train=FILES, cluster=saved).cluster
    assert loaded == (cluster or Spark(2, host="a", carry_mb=1))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("spark", r"cluster='spark': give a cluster, such as fb\.Local\(workers\)"),
        ({"workers": 0}, "cluster.workers=0: Input should be greater than"),
        ({"wrokers": 2}, r"unknown key 'cluster\.wrokers'; did you mean 'workers'"),
        ({"kind": "sprak", "workers": 1}, "there is no cluster of kind 'sprak'.*known: local, sp"),
        ({"kind": "os:getcwd"}, "'os:getcwd' is not a cluster"),
    ],
)
def test_what_is_no_cluster(given: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        settings(train=FILES, cluster=given)


def test_a_run_can_be_used_without_the_package_that_placed_its_workers() -> None:
    saved = {"kind": "not_installed.here:Mine", "workers": 3, "queue": "fast"}
    assert settings(train=FILES, cluster=saved).cluster.workers == 3
    with pytest.raises(ConfigError, match="no class is registered that places its agents"):
        open_cluster(settings(train=FILES, cluster=saved).cluster, {})


def test_a_job_file_names_it() -> None:
    values = {
        "model": "m:Net",
        "train": "rows.parquet",
        "loss": "mse",
        "run_dir": "runs/one",
        "cluster": {"spark": {"workers": 4}},
    }
    assert JobFile.parse(values).cluster.chosen == Spark(4)


def test_a_session_is_not_saved() -> None:
    dumped = Spark(2, session=object()).model_dump(mode="json")
    assert "session" not in dumped
    assert "resource_profile" not in dumped


def test_how_many_processes_a_launcher_starts_is_not_a_setting() -> None:
    with pytest.raises(ConfigError, match=r"Attached\(workers=4\): .*workers_per_process"):
        Attached(workers=4)
    with pytest.raises(ConfigError, match=r"attached\.workers: .*workers_per_process"):
        ClusterChoice.parse({"attached": {"workers": 4}})
    saved = Attached().model_copy(update={"workers": 3})
    job = {"model": CodeRef(value="module:Net"), "train": FILES, "cluster": saved.model_dump()}
    assert JobSettings(**job).cluster.workers == 3


@pytest.mark.parametrize(
    ("settings", "resources", "threads"),
    [
        (Ray(2), {"CPU": 1}, 1),
        (Ray(2, cores_per_worker=3, gpus_per_worker=0.5), {"CPU": 3, "GPU": 0.5}, 3),
        (Ray(2, cores_per_worker=0.5), {"CPU": 0.5}, 1),
    ],
)
def test_what_ray_reserves(settings: Ray, resources: dict[str, float], threads: int) -> None:
    assert (settings.resources, settings.worker_threads) == (resources, threads)


# Hosts


@pytest.mark.parametrize(
    ("given", "workers", "hosts"),
    [
        ({"hosts": ["a", "b slots=2"]}, 3, ("a slots=1", "b slots=2")),
        ({"hosts": ["a", "b"], "workers": 3}, 3, ("a slots=2", "b slots=2")),
        ({"hosts": ["a slots=4", "b"], "workers": 2}, 2, ("a slots=4", "b slots=1")),
        ({"hosts": ["a slots=4", "b"], "workers_per_host": 2}, 4, ("a slots=2", "b slots=2")),
    ],
)
def test_slots_of_hosts_say_how_many_workers_there_are(
    given: dict[str, Any], workers: int, hosts: tuple[str, ...]
) -> None:
    resolved = Ssh(**given).resolved()
    assert (resolved.workers, resolved.hosts) == (workers, hosts)
    assert resolved.resolved() == resolved


def test_more_workers_than_slots_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"cluster\.workers=5: the hosts have 3 slots"):
        Ssh(["a slots=1", "b slots=2"], workers=5).resolved()


def test_a_host_file_is_named_in_a_job_file_and_read_by_the_driver_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.txt").write_text("node1:2\n")
    for given in ("ssh", {"ssh": {"hosts": "hosts.txt"}}):
        chosen = ClusterChoice.model_validate(given).chosen
        assert chosen.hosts == "hosts.txt"
        assert (chosen.resolved().workers, chosen.resolved().hosts) == (2, ("node1 slots=2",))
    (tmp_path / "hosts.txt").unlink()
    job = settings(train=FILES, cluster=Ssh())
    assert JobSettings.parse(job.model_dump(mode="json")).cluster == Ssh()
