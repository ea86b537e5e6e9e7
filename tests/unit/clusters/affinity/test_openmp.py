import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flambeau.clusters.affinity import openmp
from flambeau.clusters.affinity.bindings import Binding

THREADS = {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where Intel's OpenMP would be installed; there is none yet."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "path", [])
    for name in ("LD_PRELOAD", "KMP_AFFINITY", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    openmp._is_present.cache_clear()
    yield tmp_path / "lib/libiomp5.so"
    openmp._is_present.cache_clear()


def install(library: Path) -> None:
    library.parent.mkdir()
    library.touch()


def test_only_the_number_of_threads_is_set_without_intels_openmp(library: Path) -> None:
    assert openmp.environment_of(Binding((0, 1), 2)) == THREADS


def test_threads_of_bound_ranks_are_placed_and_do_not_spin(library: Path) -> None:
    install(library)
    placed = {"KMP_BLOCKTIME": "1", "KMP_AFFINITY": "granularity=fine,compact,1,0"}
    assert openmp.environment_of(Binding((0, 1), 2)) == THREADS | placed
    assert openmp.environment_of(Binding((), 2)) == THREADS | {"KMP_BLOCKTIME": "1"}


def test_what_the_user_has_set_stays(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(library)
    monkeypatch.setenv("KMP_BLOCKTIME", "0")
    monkeypatch.setenv("KMP_AFFINITY", "scatter")
    assert openmp.environment_of(Binding((0, 1), 2)) == THREADS


def test_without_affinity_nothing_is_set(library: Path) -> None:
    install(library)
    assert openmp.environment_of(Binding((), None)) == {}
