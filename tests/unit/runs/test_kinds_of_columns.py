"""Data for a trained model has the kinds of columns that it was trained with."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flambeau.config import Binding, CodeRef, FileData, JobSettings
from flambeau.data.sources.parquet import ParquetSource
from flambeau.errors import DataError
from flambeau.runs.trained_run import require_kinds


def settings(path: Path) -> JobSettings:
    return JobSettings(
        model=CodeRef(path="torch.nn:Identity"),
        train=FileData(path=str(path)),
        binding=Binding(inputs={"ids": ("city", "item")}),
    )


def source(path: Path, **columns: Any) -> ParquetSource:
    pq.write_table(pa.table(columns), path)
    return ParquetSource(str(path))


@pytest.mark.parametrize(
    ("city", "item", "message"),
    [
        ([1], [1], "column 'city' holds numbers, but the model was trained with texts"),
        (["a"], ["b"], "column 'item' holds texts, but the model was trained with numbers"),
    ],
)
def test_texts_and_numbers_are_not_the_same_ids(
    tmp_path: Path, city: list[Any], item: list[Any], message: str
) -> None:
    trained = tmp_path / "train.parquet"
    source(trained, city=["a"], item=[1])
    now = source(tmp_path / "now.parquet", city=city, item=item)
    with pytest.raises(DataError, match=message):
        require_kinds(now, settings(trained))


def test_what_is_as_it_was_passes_and_so_does_anything_if_the_files_are_gone(
    tmp_path: Path,
) -> None:
    trained = tmp_path / "train.parquet"
    now = source(trained, city=["a"], item=[1])
    require_kinds(now, settings(trained))
    other = source(tmp_path / "other.parquet", city=[1], item=[1])
    require_kinds(other, settings(tmp_path / "gone.parquet"))
