"""`sizes: features` in a job file: the sizes of the columns of the ids, in their order."""

from typing import Any

import pytest

import flambeau.features as ft
from flambeau.config import Binding, CodeRef
from flambeau.driver.job_features import with_sizes
from flambeau.errors import ConfigError
from flambeau.features.pipeline import Pipeline

MODEL = CodeRef(path="flambeau.models:build", args={"name": "fm", "sizes": "features"}, call=True)


@pytest.fixture
def pipeline() -> Pipeline:
    made = ft.Pipeline([ft.Categorify(["user", "item"])])
    return made.fit({"user": ["a", "b", "b"], "price": [1.0, 2.0, 3.0], "item": [7, 7, 7]})


def test_they_are_in_the_order_of_the_ids(pipeline: Pipeline) -> None:
    found = with_sizes(MODEL, Binding(inputs={"ids": ("item", "user")}), pipeline)
    sizes = pipeline.sizes_
    assert list(found.args["sizes"].items()) == [("item", sizes["item"]), ("user", sizes["user"])]
    assert found.args["name"] == "fm"
    alone = with_sizes(MODEL, Binding(inputs={"ids": "user"}), pipeline)
    assert alone.args["sizes"] == {"user": sizes["user"]}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"ids": ("user", "price")}, "does not number the values of 'price'; .* user, item"),
        (("user", "item"), r"needs inputs: \{ids:"),
        (None, r"needs inputs: \{ids:"),
    ],
)
def test_columns_without_sizes_are_refused(pipeline: Pipeline, inputs: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_sizes(MODEL, Binding(inputs=inputs), pipeline)


def test_a_job_without_features_has_none() -> None:
    with pytest.raises(ConfigError, match="the job's pipeline has, and it has none: give features"):
        with_sizes(MODEL, Binding(inputs={"ids": "user"}), None)
