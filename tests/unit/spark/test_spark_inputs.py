"""Which columns of a DataFrame a model is given."""

import pytest
from pyspark.sql.types import DoubleType, StructField, StructType

from flambeau.errors import DataError
from flambeau.inference.export_description import Parameter
from flambeau.spark import TorchEstimator
from flambeau.spark.inputs import find_inputs

SCHEMA = StructType([StructField(name, DoubleType()) for name in ("age", "price", "label")])


def parameter(name: str) -> Parameter:
    return Parameter(name=name, kind="POSITIONAL_OR_KEYWORD", required=True)


def test_columns_that_are_found_nowhere_name_the_params_and_the_columns() -> None:
    message = "needs 'x'.*nor 'features': set featuresCol or inputCols; it has age, price, label"
    with pytest.raises(DataError, match=message):
        find_inputs(TorchEstimator(), SCHEMA, [parameter("x")], {})


def test_columns_with_the_names_of_parameters_need_no_params() -> None:
    found = find_inputs(TorchEstimator(), SCHEMA, [parameter("age"), parameter("price")], {})
    assert found.columns == ("age", "price")
