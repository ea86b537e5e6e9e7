from typing import Any

import pytest

from flambeau.config.overrides import override
from flambeau.errors import ConfigError


def overridden(values: dict[str, Any], *overrides: str) -> dict[str, Any]:
    override(values, overrides)
    return values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-3", 1e-3),
        ("[a, b]", ["a", "b"]),
        ("true", True),
        ("null", None),
        ("x=y", "x=y"),
    ],
)
def test_a_value_is_yaml(text: str, value: Any) -> None:
    assert overridden({}, f"key={text}") == {"key": value}


def test_a_dotted_key_goes_inside_and_leaves_the_rest() -> None:
    assert overridden({"a": {"b": 1, "c": 2}}, "a.b=3", "a.d.e=4") == {
        "a": {"b": 3, "c": 2, "d": {"e": 4}}
    }


@pytest.mark.parametrize(
    ("key", "name", "text", "value"),
    [
        ("cluster", "local", "cluster.local.workers=2", {"local": {"workers": 2}}),
        ("optimizer", "sgd", "optimizer.lr=2", {"name": "sgd", "lr": 2}),
        ("train", "a.csv", "train.format=csv", {"path": "a.csv", "format": "csv"}),
        ("schedule", "cosine", "schedule.warmup=2", {"kind": "cosine", "warmup": 2}),
    ],
)
def test_a_part_of_a_short_form_can_be_set(key: str, name: str, text: str, value: Any) -> None:
    assert overridden({key: name}, text) == {key: value}


def test_a_key_can_be_removed() -> None:
    values = {"a": {"b": 1, "c": 2}, "d": 3}
    assert overridden(values, "~a.b", "~d") == {"a": {"c": 2}}


def test_the_keys_that_were_set_are_told() -> None:
    assert override({}, ["a.b=1", "c=2"]) == ["a.b", "c"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs", "command line: 'epochs' is not of the form key=value or ~key"),
        ("=3", "command line: '=3' is not of the form key=value or ~key"),
        ("epochs.x=3", "command line: epochs is 5, which has no parts to set"),
        ("~epocs", "command line: there is no 'epocs' to remove; did you mean 'epochs'?"),
        ("~epochs.x", "command line: there is no 'epochs.x' to remove"),
        ("metrics=[a", "command line: metrics, line 1, column 3: "),
    ],
)
def test_what_cannot_be_set_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override({"epochs": 5}, [text])
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) == 1
