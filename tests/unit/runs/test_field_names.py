"""Sizes by name are those of the columns that the model is given."""

from typing import Any

import pytest

from flambeau.config import Binding
from flambeau.errors import ModelError
from flambeau.models import DeepFM
from flambeau.runs.field_names import check_field_names


def model(sizes: Any) -> DeepFM:
    return DeepFM(2, 0, sizes=sizes, dense_below=10)


@pytest.mark.parametrize("inputs", [{"ids": ("a", "b")}, ("ids",), None])
def test_the_same_columns_are_fine(inputs: Any) -> None:
    check_field_names(model({"a": 3, "b": 4}), Binding(inputs=inputs))
    check_field_names(model([3, 4]), Binding(inputs=inputs))


@pytest.mark.parametrize("columns", [("b", "a"), ("a", "c"), "a"])
def test_others_or_another_order_are_refused(columns: Any) -> None:
    with pytest.raises(ModelError, match=r"of the columns a, b, in this order, and its ids are"):
        check_field_names(model({"a": 3, "b": 4}), Binding(inputs={"ids": columns}))
