from pathlib import Path

import pytest
from fake_stage import job_settings

from flambeau.config import OptimizerSpec, TableSpec
from flambeau.strategies.table_checkpoints import Layers
from flambeau.tables.saved.saving import SavedTable

ITEM = TableSpec(name="item", dim=4)


def files(full: bool) -> dict[str, list[SavedTable]]:
    """A table's part of each of two shards."""
    return {"item": [SavedTable("item", f"item-{shard}", full) for shard in (0, 1)]}


def new() -> Layers:
    return Layers(job_settings())


def save(layers: Layers, step: int, *, full: bool) -> list[list[str]]:
    return layers.entries(Path("run") / f"step-{step}", [ITEM], files(full))["item"].layers


def test_a_full_save_is_one_layer_of_a_file_for_each_shard() -> None:
    layers = new()
    assert layers.count == 0
    assert save(layers, 1, full=True) == [["item-0", "item-1"]]
    assert layers.count == 1


def test_what_changed_lies_over_the_last_full_save() -> None:
    layers = new()
    save(layers, 1, full=True)
    for step in (2, 3):
        assert save(layers, step, full=False) == [
            ["item-0", "item-1"],
            ["../step-1/item-0", "../step-1/item-1"],
        ]
    assert layers.count == 3


def test_a_full_save_needs_no_other() -> None:
    layers = new()
    save(layers, 1, full=True)
    save(layers, 2, full=False)
    assert save(layers, 3, full=True) == [["item-0", "item-1"]]
    assert layers.count == 1


def test_if_one_shard_saved_changes_only_the_layer_before_is_needed() -> None:
    layers = new()
    save(layers, 1, full=True)
    mixed = {"item": [SavedTable("item", "item-0", True), SavedTable("item", "item-1", False)]}
    entry = layers.entries(Path("run/step-2"), [ITEM], mixed)["item"]
    assert len(entry.layers) == 2


@pytest.mark.parametrize(("step", "builds"), [(1, True), (2, False), (3, False)])
def test_a_directory_that_is_built_on_must_not_be_written_anew(step: int, builds: bool) -> None:
    layers = new()
    save(layers, 1, full=True)
    save(layers, 2, full=False)
    assert layers.build_on(Path("run") / f"step-{step}") is builds


def test_the_optimizer_of_a_table_is_its_own_or_the_jobs() -> None:
    default = OptimizerSpec(name="adagrad", args={"lr": 0.5})
    layers = Layers(job_settings(table_optimizer=default))
    own = TableSpec(name="own", dim=4, optimizer=OptimizerSpec(name="sgd"))
    saved = {name: [SavedTable(name, name, True)] for name in ("item", "own")}
    entries = layers.entries(Path("run/step-1"), [ITEM, own], saved)
    names = {name: entry.spec["optimizer"]["name"] for name, entry in entries.items()}
    assert names == {"item": "adagrad", "own": "sgd"}
