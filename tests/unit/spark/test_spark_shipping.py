"""A model's files on another machine."""

import os
import shutil
import time
from pathlib import Path

import fsspec
import pytest
import torch

from flambeau.errors import DataError, ModelError
from flambeau.spark.folder import digest, files_of, load_module, read_described, write_folder
from flambeau.spark.modules import Network
from flambeau.spark.shipping import Shipped


@pytest.fixture
def model(tmp_path: Path) -> Path:
    network = Network(torch.nn.Linear, {"in_features": 2, "out_features": 1})
    write_folder(tmp_path / "model", network, network())
    return tmp_path / "model"


def shipped(model: Path, place: str, *, inside: bool = False) -> Shipped:
    files = {name: path.read_bytes() for name, path in files_of(model).items()}
    return Shipped(digest(model), place, files if inside else None, 200 << 20)


def test_files_that_can_be_seen_are_used_where_they_are(model: Path, tmp_path: Path) -> None:
    assert shipped(model, str(model)).folder(tmp_path / "cache") == model
    assert not (tmp_path / "cache").exists()


def test_another_model_at_the_same_place_is_not_taken_for_it(model: Path, tmp_path: Path) -> None:
    sent = shipped(model, str(model), inside=True)
    network = Network(torch.nn.Linear, {"in_features": 3, "out_features": 1})
    shutil.rmtree(model)
    write_folder(model, network, network())
    assert load_module(sent.folder(tmp_path / "cache")).in_features == 2


def test_files_that_came_along_are_written_once(model: Path, tmp_path: Path) -> None:
    sent = shipped(model, "/nowhere", inside=True)
    found = sent.folder(tmp_path / "cache")
    assert torch.equal(load_module(found).weight, load_module(model).weight)
    before = (found / "model.json").stat().st_ino
    assert (sent.folder(tmp_path / "cache") / "model.json").stat().st_ino == before
    assert digest(found) == digest(model)


def test_models_that_nobody_uses_any_more_are_removed(model: Path, tmp_path: Path) -> None:
    old, used = tmp_path / "cache" / "old", tmp_path / "cache" / "used"
    for folder in (old, used):
        folder.mkdir(parents=True)
    os.utime(old, (time.time() - 1e6,) * 2)
    shipped(model, "/nowhere", inside=True).folder(tmp_path / "cache")
    assert not old.exists()
    assert used.exists()


def test_files_at_a_url_are_copied(model: Path, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(model), "/models/one", recursive=True)
    try:
        found = shipped(model, "memory://models/one").folder(tmp_path / "cache")
        assert files_of(found).keys() == files_of(model).keys()
    finally:
        memory.rm("/models", recursive=True)


def test_files_out_of_reach_are_an_error(model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\(200 MB\) are in /nowhere, which this executor cannot"):
        shipped(model, "/nowhere").folder(tmp_path / "cache")


def test_a_model_with_a_path_has_its_arguments_in_json(model: Path) -> None:
    described = read_described(model)
    assert described.model.path == "torch.nn.modules.linear:Linear"
    assert described.model.args == {"in_features": 2, "out_features": 1}
    assert not described.by_value


def test_what_is_no_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no model"):
        read_described(tmp_path)
    (tmp_path / "model.json").write_text('{"version": 9}')
    with pytest.raises(DataError, match="has version 9, and this Flambeau reads 1"):
        read_described(tmp_path)
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        read_described(tmp_path)
    with pytest.raises(ModelError, match=r"the model is a dict, not an nn\.Module"):
        Network(dict, {})()
