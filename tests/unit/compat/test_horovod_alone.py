"""Horovod's interface in one process, and what comes before any collective."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import flambeau as fb
import flambeau.compat.horovod as hvd
from flambeau.cli.horovod_hosts import cluster_for
from flambeau.compat.horovod.engine.environment import horovod_settings, own_ranks
from flambeau.compat.horovod.execution.scaling import divide, scale
from flambeau.errors import ConfigError


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FLAMBEAU_ATTACH", "off")
    hvd.init()
    yield
    hvd.shutdown()


@pytest.mark.usefixtures("alone")
def test_one_process_is_a_group_of_one() -> None:
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.cross_size()) == (0, 1, 0, 1)
    ones = torch.ones(3)
    assert torch.equal(hvd.allreduce(ones), ones)
    assert torch.equal(hvd.allgather(torch.tensor(2.0)), torch.tensor([2.0]))
    assert torch.equal(hvd.alltoall(ones, splits=[2])[0], ones[:2])
    assert hvd.broadcast_object([1, 2]) == [1, 2]
    assert hvd.join() == 0
    with pytest.raises(hvd.HorovodInternalError, match="from rank 1"):
        hvd.broadcast(ones, 1)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum), "supersedes"),
        (lambda: hvd.allreduce(torch.ones(1), op=17), "op=17"),
        (lambda: hvd.allreduce(torch.ones(1, dtype=torch.complex64)), "complex64"),
        (lambda: hvd.allreduce(torch.eye(2).to_sparse()), "sparse"),
        (lambda: hvd.alltoall(torch.ones(3), splits=[4]), "splits"),
        (lambda: hvd.reducescatter(torch.ones(3), op=hvd.Max), "average and sum"),
        (lambda: hvd.add_process_set([3]), "ranks"),
        (lambda: hvd.broadcast_parameters([1, 2], 0), "state_dict"),
    ],
)
def test_what_cannot_be_is_refused(call: object, words: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=words):
        call()


def test_it_has_to_be_initialized() -> None:
    with pytest.raises(ValueError, match=r"hvd\.init"):
        hvd.rank()


@pytest.mark.parametrize(("dtype", "result"), [(torch.int64, -2), (torch.float16, -2.5)])
def test_averages_of_integers_are_cut_off(dtype: torch.dtype, result: float) -> None:
    number = torch.tensor(-5, dtype=dtype)
    divide(number, 2)
    assert number.item() == result


def test_factors_of_integers_are_applied_in_double_precision() -> None:
    number = torch.tensor(3, dtype=torch.int64)
    scale(number, 0.7)
    assert number.item() == 2


def test_settings_are_horovods_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "1024")
    monkeypatch.setenv("HOROVOD_STALL_CHECK_DISABLE", "1")
    settings = horovod_settings()
    assert (settings.fusion_bytes, settings.stall_seconds) == (1024, 0.0)
    monkeypatch.setenv("HOROVOD_CACHE_CAPACITY", "many")
    with pytest.raises(ConfigError, match="HOROVOD_CACHE_CAPACITY='many'"):
        horovod_settings()


def test_horovods_launcher_gives_local_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("HOROVOD_RANK", "3")
    monkeypatch.setenv("HOROVOD_LOCAL_RANK", "1")
    assert own_ranks() == {"local_rank": 1}


def hosts(given: str | None, file: Path | None = None, processes: int | None = None) -> Any:
    return cluster_for(given, file, processes, ["ssh", "-p", "23"], {"HOROVOD_TIMELINE": "t"})


def test_hosts_of_horovodrun(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# ours\nlocalhost slots=3\n127.0.0.1:2\n")
    assert hosts(None) == fb.Local(1)
    assert hosts(None, processes=4) == fb.Local(4)
    assert hosts(None, file) == fb.Local(5)
    assert hosts("localhost:3", processes=2) == fb.Local(2)
    assert hosts("far1:2,far2", processes=3) == fb.Ssh(
        ["far1 slots=2", "far2 slots=1"],
        workers=3,
        ssh=("ssh", "-p", "23"),
        environment={"HOROVOD_TIMELINE": "t"},
    )
    with pytest.raises(ConfigError, match="-np 3: the hosts have 2 slots"):
        hosts("localhost:2", processes=3)
    with pytest.raises(ConfigError, match="not both"):
        hosts("localhost", file)
    with pytest.raises(ConfigError, match="localhost:x"):
        hosts("localhost:x")
