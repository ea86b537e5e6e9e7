from pathlib import Path

import pyarrow as pa

from flambeau.inference.writing import write_predictions


def test_csv_has_a_column_for_each_place_of_a_list(tmp_path: Path) -> None:
    values = pa.FixedSizeListArray.from_arrays(pa.array([0.25, 0.75, 0.5, 0.5]), 2)
    batch = pa.RecordBatch.from_pydict({"prediction": pa.array([1, 0]), "p": values})
    assert write_predictions(iter([batch]), tmp_path / "out.csv") == 2
    assert (tmp_path / "out.csv").read_text().splitlines() == [
        '"prediction","p_0","p_1"',
        "1,0.25,0.75",
        "0,0.5,0.5",
    ]
