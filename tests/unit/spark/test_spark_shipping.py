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
from flambeau.spark.model_cache import ModelCache
from flambeau.spark.modules import Network
from flambeau.spark.shipping import Shipped


@pytest.fixture
def model(tmp_path: Path) -> Path:
    network = Network(torch.nn.Linear, {"in_features": 2, "out_features": 1})
    write_folder(tmp_path / "model", network, network())
    return tmp_path / "model"


def shipped(model: Path, place: str, cache: ModelCache, *, inside: bool = False) -> Shipped:
    files = {name: path.read_bytes() for name, path in files_of(model).items()}
    return Shipped(digest(model), place, files if inside else None, 200 << 20, cache)


@pytest.fixture
def cache(tmp_path: Path) -> ModelCache:
    return ModelCache(str(tmp_path / "cache"))


def entry(cache: ModelCache, name: str, age: float, nbytes: int = 1) -> Path:
    """A model in the cache that was last used `age` seconds ago."""
    folder = cache._folder() / name
    folder.mkdir()
    with (folder / "file").open("wb") as file:
        file.truncate(nbytes)
    os.utime(folder, (time.time() - age,) * 2)
    return folder


def test_files_that_can_be_seen_are_used_where_they_are(model: Path, cache: ModelCache) -> None:
    with shipped(model, str(model), cache).opened() as folder:
        assert folder == model
    assert not Path(cache.parent).exists()


def test_another_model_at_the_same_place_is_not_taken_for_it(
    model: Path, cache: ModelCache
) -> None:
    sent = shipped(model, str(model), cache, inside=True)
    network = Network(torch.nn.Linear, {"in_features": 3, "out_features": 1})
    shutil.rmtree(model)
    write_folder(model, network, network())
    with sent.opened() as folder:
        assert load_module(folder).in_features == 2


def test_files_that_came_along_are_written_once(model: Path, cache: ModelCache) -> None:
    sent = shipped(model, "/nowhere", cache, inside=True)
    with sent.opened() as found, sent.opened() as again:
        assert torch.equal(load_module(found).weight, load_module(model).weight)
        assert (found / "model.json").stat().st_ino == (again / "model.json").stat().st_ino
        assert digest(found) == digest(model)


def test_models_that_were_not_used_for_a_day_are_removed(model: Path, cache: ModelCache) -> None:
    old, used = entry(cache, "old", age=1e6), entry(cache, "used", age=60)
    with shipped(model, "/nowhere", cache, inside=True).opened():
        assert not old.exists()
        assert used.exists()


def test_the_least_recently_used_models_make_room(model: Path, tmp_path: Path) -> None:
    cache = ModelCache(str(tmp_path / "cache"), limit=600 << 20)
    ages = {"first": 30, "last": 10, "middle": 20}
    entries = {name: entry(cache, name, age, 200 << 20) for name, age in ages.items()}
    with shipped(model, "/nowhere", cache, inside=True).opened() as found:
        assert found.is_dir()
    assert [name for name, path in entries.items() if path.exists()] == ["last", "middle"]


def test_a_model_that_is_larger_than_the_cache(model: Path, tmp_path: Path) -> None:
    cache = ModelCache(str(tmp_path / "cache"), limit=100 << 20)
    sent = shipped(model, "/nowhere", cache, inside=True)
    with (
        pytest.raises(DataError, match=r"\(200 MB\) are larger .* raise spark\.flambeau"),
        sent.opened(),
    ):
        pass


def test_a_cache_that_others_can_write_to_is_not_used(model: Path, cache: ModelCache) -> None:
    cache._folder().chmod(0o777)
    sent = shipped(model, "/nowhere", cache, inside=True)
    with pytest.raises(DataError, match="is not a folder of this user alone"), sent.opened():
        pass


def test_files_at_a_url_are_copied(model: Path, cache: ModelCache) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(model), "/models/one", recursive=True)
    try:
        with shipped(model, "memory://models/one", cache).opened() as found:
            assert files_of(found).keys() == files_of(model).keys()
    finally:
        memory.rm("/models", recursive=True)


def test_files_out_of_reach_are_an_error(model: Path, cache: ModelCache) -> None:
    sent = shipped(model, "/nowhere", cache)
    with (
        pytest.raises(DataError, match=r"\(200 MB\) are in /nowhere, which this executor"),
        sent.opened(),
    ):
        pass


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
