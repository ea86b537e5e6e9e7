import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flambeau.compat import alias
from flambeau.errors import ConfigError


@pytest.fixture(autouse=True)
def no_aliases(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "sparktorch"]:
        del sys.modules[name]


def test_the_other_name_means_the_same_modules() -> None:
    alias("sparktorch")
    there = importlib.import_module("sparktorch.torch_distributed")
    here = importlib.import_module("flambeau.compat.sparktorch.torch_distributed")
    assert there is here
    assert importlib.import_module("sparktorch").SparkTorch is here.SparkTorch


def test_modules_and_classes_know_where_they_come_from() -> None:
    alias("sparktorch")
    nets = importlib.import_module("sparktorch.tests.simple_net")
    assert nets.__spec__.name == "flambeau.compat.sparktorch.tests.simple_net"
    assert nets.Net.__module__ == "flambeau.compat.sparktorch.tests.simple_net"


def test_an_alias_goes_before_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sparktorch.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(tmp_path)
    alias("sparktorch")
    assert importlib.import_module("sparktorch").__name__ == "flambeau.compat.sparktorch"


def test_a_module_that_is_not_there_is_not_found() -> None:
    alias("sparktorch")
    with pytest.raises(ModuleNotFoundError, match=r"sparktorch\.hogwild"):
        importlib.import_module("sparktorch.hogwild")


def test_the_same_alias_may_be_asked_for_again() -> None:
    alias("sparktorch")
    importlib.import_module("sparktorch")
    before = list(sys.meta_path)
    alias("sparktorch")
    assert sys.meta_path == before


def test_an_alias_that_comes_too_late_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sparktorch", sys)
    with pytest.raises(ConfigError, match=r"imported already; alias\('sparktorch'\) has to come"):
        alias("sparktorch")


def test_an_unknown_alias_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="no alias 'sparktorsh'; did you mean 'sparktorch'"):
        alias("sparktorsh")
