"""The user's code reaches the workers."""

import collections
import json
import stat
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from flambeau.checkpoint.user_code import Packer, importable_path, load, pack
from flambeau.config import CodeRef
from flambeau.errors import ModelError


class Net:
    """A model at the top of an importable module."""

    def __init__(self, hidden: int, out: int = 1) -> None:
        self.hidden = hidden
        self.out = out

    class Inner:
        pass


def make_local() -> type:
    class Local(Net):
        pass

    return Local


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A `__main__` that defines a class."""
    module = types.ModuleType("__main__")
    exec("class Model:\n    size = 3\ndef loss(output, batch):\n    return output", vars(module))
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def test_what_is_importable_goes_by_path(tmp_path: Path) -> None:
    ref = pack(collections.OrderedDict, tmp_path, "model")
    assert ref == CodeRef(path="collections:OrderedDict")
    assert load(ref, tmp_path) is collections.OrderedDict
    assert not (tmp_path / "model.pkl").exists()


def test_a_nested_class_is_importable() -> None:
    assert importable_path(Net.Inner) == f"{__name__}:Net.Inner"


@pytest.mark.parametrize(
    "obj", [make_local(), lambda: 1, Net(3), Net(3).__init__, 5], ids=lambda obj: type(obj).__name__
)
def test_what_has_no_path(obj: Any) -> None:
    assert importable_path(obj) is None


def test_another_object_of_the_same_name_has_no_path() -> None:
    imposter = type("Net", (), {"__module__": __name__, "__qualname__": "Net"})
    assert importable_path(imposter) is None


def test_a_script_has_no_path(script: types.ModuleType) -> None:
    assert importable_path(script.Model) is None


def test_a_module_made_by_hand_has_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("made_by_hand")
    exec("def f(): pass", vars(module))
    monkeypatch.setitem(sys.modules, "made_by_hand", module)
    assert importable_path(module.f) is None


def test_code_of_a_script_goes_by_value(
    tmp_path: Path, script: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = pack(script.Model, tmp_path, "model")
    assert ref == CodeRef(value="model.pkl")
    monkeypatch.delattr(script, "Model")
    assert load(ref, tmp_path).size == 3


def test_an_instance_goes_by_value(tmp_path: Path) -> None:
    assert load(pack(Net(7), tmp_path, "model"), tmp_path).hidden == 7


def test_a_value_is_for_the_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "code"
    pack(Net(7), directory, "model")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "model.pkl").stat().st_mode) == 0o600


def test_the_index_says_how_each_thing_went(tmp_path: Path) -> None:
    packer = Packer()
    packer.add(Net(7), "model")
    packer.add(Net, "loss")
    packer.write(tmp_path)
    assert json.loads((tmp_path / "index.json").read_text()) == {
        "model": {"by": "value", "value": "model.pkl", "type": f"{__name__}.Net"},
        "loss": {"by": "path", "path": f"{__name__}:Net"},
    }


def test_a_name_cannot_leave_the_directory(tmp_path: Path) -> None:
    ref = pack(Net(7), tmp_path / "code", "loss.../../x")
    assert load(ref, tmp_path / "code").hidden == 7
    assert [path.name for path in tmp_path.iterdir()] == ["code"]


def test_what_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    net = Net(7)
    net.cache = {"mutex": [threading.Lock()]}  # type: ignore[attr-defined]
    net.me = net  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match=r"model\.cache\.mutex\.0 \(lock\) .*'_thread\.lock'"):
        pack(net, tmp_path, "model")
    assert not any(tmp_path.iterdir())


def test_what_a_function_holds_is_named(tmp_path: Path) -> None:
    log = (tmp_path / "log").open("w")
    with log, pytest.raises(ModelError, match=r"loss\.log \(TextIOWrapper\)"):
        pack(lambda output, batch: log.write("x"), tmp_path / "code", "loss")


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot import no_such\.net:Net: .*module 'no_such'"):
        load(CodeRef(path="no_such.net:Net"), tmp_path)


def test_a_missing_name_has_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="collections has no 'OrderdDict'; did you mean 'Ordered"):
        load(CodeRef(path="collections:OrderdDict"), tmp_path)


def test_a_missing_inner_name_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="Net has no 'Iner'; did you mean 'Inner'"):
        load(CodeRef(path=f"{__name__}:Net.Iner"), tmp_path)


def test_a_module_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "breaks_on_import.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match="ZeroDivisionError in breaks_on_import"):
        load(CodeRef(path="breaks_on_import:Net"), tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.pkl is missing"):
        load(CodeRef(value="model.pkl"), tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(b"\x80\x05garbage")
    with pytest.raises(ModelError, match=r"cannot load .*model\.pkl: UnpicklingError"):
        load(CodeRef(value="model.pkl"), tmp_path)


def test_call_builds_with_the_arguments(tmp_path: Path) -> None:
    net = load(CodeRef(path=f"{__name__}:Net", call=True, args={"hidden": 4}), tmp_path)
    assert (net.hidden, net.out) == (4, 1)


def test_wrong_arguments_show_the_signature(tmp_path: Path) -> None:
    ref = CodeRef(path=f"{__name__}:Net", call=True, args={"hiden": 4})
    with pytest.raises(ModelError, match=r"'hiden'; its signature is Net\(hidden: int, out: int"):
        load(ref, tmp_path)
