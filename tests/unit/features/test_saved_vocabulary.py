"""The files of a saved vocabulary."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import flambeau.features as ft

ROWS = {"city": ["Köln", "Ulm", "Köln", "", None, "Köln", "Ulm"]}


def fitted() -> ft.Pipeline:
    return ft.Pipeline([ft.Categorify("city")]).fit(ROWS)


def test_it_has_value_count_and_id(tmp_path: Path) -> None:
    pipeline = fitted()
    pipeline.save(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob("*.parquet")
    table = pq.read_table(file)
    assert table.to_pydict() == {
        "value": ["Köln", "Ulm", ""],
        "count": [3, 2, 1],
        "id": [1, 2, 3],
    }
    ids = pipeline.transform({"city": table["value"].combine_chunks()})["city"]
    assert ids.to_pylist() == table["id"].to_pylist()


def test_it_is_the_same_pipeline_when_it_is_loaded(tmp_path: Path) -> None:
    pipeline = fitted()
    pipeline.save(tmp_path / "saved")
    loaded = ft.Pipeline.load(tmp_path / "saved")
    assert loaded.digest == pipeline.digest
    assert loaded.transform(ROWS) == pipeline.transform(ROWS)


def test_one_without_ids_is_loaded(tmp_path: Path) -> None:
    pipeline = fitted()
    pipeline.save(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob("*.parquet")
    pq.write_table(pq.read_table(file).drop(["id"]), file)
    assert ft.Pipeline.load(tmp_path / "saved").digest == pipeline.digest


def test_the_column_id_of_a_joined_table_stays(tmp_path: Path) -> None:
    table = pa.table({"city": ["Ulm"], "id": [7]})
    pipeline = ft.Pipeline([ft.Join(table, on="city")]).fit(ROWS)
    pipeline.save(tmp_path / "saved")
    loaded = ft.Pipeline.load(tmp_path / "saved")
    assert loaded.transform({"city": ["Ulm"]})["id"].to_pylist() == [7]
