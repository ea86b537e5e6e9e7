from typing import Any

import pytest

from flambeau.config import optim
from flambeau.config.tables import Initializer, MinCount, TableSpec
from flambeau.embeddings.attach import tables_of
from flambeau.errors import ConfigError, ModelError
from flambeau.models import DeepFM


def tables(table: dict[str, Any] | None) -> dict[str, TableSpec]:
    return {spec.name: spec for spec in tables_of(DeepFM(fields=2, dense=0, table=table))}


def test_settings_are_for_all_tables() -> None:
    found = tables({"optimizer": optim("adagrad", lr=0.05), "dtype": "bf16"})
    assert [spec.dtype for spec in found.values()] == ["bf16", "bf16"]
    assert found["linear"].optimizer == found["embeddings"].optimizer == optim("adagrad", lr=0.05)


def test_linear_weights_begin_with_zero_whatever_embeddings_do() -> None:
    found = tables({"initializer": Initializer(kind="normal", scale=0.01)})
    assert found["linear"].initializer == Initializer(kind="constant", value=0.0)
    assert found["embeddings"].initializer.kind == "normal"


def test_a_table_may_have_settings_of_its_own() -> None:
    own = {"optimizer": optim("ftrl", lr=0.1), "initializer": Initializer(scale=0.2)}
    found = tables({"admission": MinCount(2), "linear": own})
    assert found["linear"].optimizer == optim("ftrl", lr=0.1)
    assert found["linear"].initializer.scale == 0.2
    assert found["linear"].admission == found["embeddings"].admission == MinCount(2)
    assert found["embeddings"].optimizer is None


def test_settings_may_come_from_a_file() -> None:
    text = {
        "optimizer": {"name": "adagrad", "lr": 0.05},
        "admission": {"kind": "min_count", "count": 3},
        "embeddings": {"optimizer": "adam"},
    }
    found = tables(text)
    assert found["linear"].optimizer == optim("adagrad", lr=0.05)
    assert found["linear"].admission == MinCount(3)
    assert found["embeddings"].optimizer == optim("adam")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": "mine"}, "table= has 'name'"),
        ({"linear": {"dim": 2, "name": "x"}}, "table= has 'dim', 'name'"),
        ({"linear": 3}, "table=3: give settings"),
        (["bf16"], "give settings of tables by name"),
    ],
)
def test_what_is_no_setting_is_refused(table: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        tables(table)


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(ConfigError, match="admision"):
        tables({"admision": MinCount(2)})
