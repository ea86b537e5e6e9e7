from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from flambeau.config import Binding, TableSpec
from flambeau.data.binding import Binder
from flambeau.embeddings import InProcessTables
from flambeau.errors import ConfigError, DataError, ModelError
from flambeau.inference.shorthands import expand
from flambeau.inference.vector_files import export_vectors
from flambeau.runs import item_vectors as run_vectors
from flambeau.runs import open_data


def item_vectors(item: Tensor) -> Tensor:
    assert torch.is_inference_mode_enabled()
    item = item.view(len(item), -1)
    return torch.stack([item[:, 0].float(), -item[:, 0].float()], dim=1)


def export(data: dict[str, Any], out: Path, encode: Any = item_vectors, **settings: Any) -> int:
    id = settings.pop("id", None)
    source = open_data.array_source(data)
    binding = Binding(keys=() if id is None else (id,), **settings)
    binder = Binder(binding, encode, open_data.shape_of(source), expand=expand)
    return export_vectors(encode, source, binder, out, 2, id)


def test_a_table_can_begin_with_what_was_written(tmp_path: Path) -> None:
    out = tmp_path / "items.parquet"
    assert export({"item": np.array([7, 8, 9])}, out) == 3
    spec = TableSpec("item", 2, init=str(out))
    tables = InProcessTables()
    tables.declare([spec])
    (rows,) = tables.pull([(spec, np.array([9, 7]))], training=False)
    assert rows.tolist() == [[9.0, -9.0], [7.0, -7.0]]


def test_the_first_field_or_a_column_says_the_ids(tmp_path: Path) -> None:
    data = {"item": np.array([[7, 1], [8, 1]]), "sku": np.array([70, 80])}
    export(data, tmp_path / "a.parquet")
    export(data, tmp_path / "b.parquet", id="sku")
    assert pq.read_table(tmp_path / "a.parquet")["id"].to_pylist() == [7, 8]
    assert pq.read_table(tmp_path / "b.parquet")["id"].to_pylist() == [70, 80]


def test_what_gives_no_vectors_or_ids_is_refused(tmp_path: Path) -> None:
    out, data = tmp_path / "x.parquet", {"item": np.array([7, 8, 9])}
    with pytest.raises(ConfigError, match=r"ends in \.parquet"):
        export(data, tmp_path / "x.csv")
    with pytest.raises(ModelError, match=r"the model gave \[2\]"):
        export(data, out, lambda item: item.float())
    with pytest.raises(DataError, match="column 'item' does not hold ids"):
        export({"item": np.array([0.5, 1.5])}, out)
    assert not out.exists()


def test_only_the_towers_columns_are_asked_for() -> None:
    settings = Binding(
        inputs={"user": ["user", "age"], "item": ["item", "pair"]},
        label="y",
        hash={"seen": "item", "shop": "brand"},
        crosses={"pair": ["item", "shop"], "other": ["user", "age"]},
    )
    found = run_vectors._binding(settings, item_vectors, None)
    expected = Binding(
        inputs={"item": ["item", "pair"]},
        hash={"shop": "brand"},
        crosses={"pair": ["item", "shop"]},
    )
    assert found == expected


def test_a_model_without_vectors_is_named() -> None:
    with pytest.raises(ModelError, match=r"Linear has no method user_vectors"):
        run_vectors._encoder(nn.Linear(1, 1), "user")
