from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from torch import Tensor, nn

from flambeau.config import Binding
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.data.source import IndexedSource
from flambeau.errors import ConfigError, DataError
from flambeau.inference.parts import batches_of, cut_parts
from flambeau.inference.scorer import Scorer
from flambeau.inference.shorthands import expand
from flambeau.inference.writing import is_folder, write_predictions

COLUMNS = ("x", "id", "name")


class Rows(IndexedSource):
    columns = COLUMNS

    def __len__(self) -> int:
        return 5

    def take(self, rows: np.ndarray, columns: Sequence[str] | None = None) -> Batch:
        names = np.array([f"row {row}" for row in rows], dtype=object)
        whole = {"x": torch.from_numpy(rows).float(), "id": torch.from_numpy(rows), "name": names}
        return Batch({name: whole[name] for name in columns or COLUMNS}, len(rows))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.9)

    def forward(self, x: Tensor) -> Tensor:
        assert torch.is_inference_mode_enabled()
        return self.drop(2 * x)


def predict(**transform: object) -> Iterator[pa.RecordBatch]:
    keys = ("id", "name")
    model = Model().eval()
    scorer = Scorer(model, "mse", keys, **transform)  # type: ignore[arg-type]
    binder = Binder(Binding(keys=keys), model.forward, Shape(COLUMNS), expand=expand)
    (part,) = cut_parts(Rows())
    return (scorer.score(batch, binder) for batch in batches_of(Rows(), part, binder, 2))


EXPECTED = {
    "id": [0, 1, 2, 3, 4],
    "name": [f"row {row}" for row in range(5)],
    "prediction": [0.0, 2.0, 4.0, 6.0, 8.0],
}


def test_rows_keep_their_order_and_keys_are_beside_them() -> None:
    batches = list(predict())
    assert [batch.num_rows for batch in batches] == [2, 2, 1]
    assert pa.Table.from_batches(batches).to_pydict() == EXPECTED


def test_a_transform_is_applied_first() -> None:
    def negate(batch: Batch) -> Batch:
        return Batch({**batch.columns, "x": -batch["x"]}, batch.size)

    table = pa.Table.from_batches(list(predict(transform=negate)))
    assert table["prediction"].to_pylist() == [0.0, -2.0, -4.0, -6.0, -8.0]


def test_parquet_and_csv_hold_the_same(tmp_path: Path) -> None:
    files = [tmp_path / "out.parquet", tmp_path / "deep" / "out.csv"]
    assert [write_predictions(predict(), file) for file in files] == [5, 5]
    assert pyarrow.parquet.read_table(files[0]).to_pydict() == EXPECTED
    assert pyarrow.csv.read_csv(files[1]).to_pydict() == EXPECTED


def test_lists_become_columns_of_their_places_in_csv(tmp_path: Path) -> None:
    pairs = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4]), 2)
    batch = pa.RecordBatch.from_pydict({"p": pairs})
    write_predictions(iter([batch]), tmp_path / "out.csv")
    assert pyarrow.csv.read_csv(tmp_path / "out.csv").to_pydict() == {"p_0": [1, 3], "p_1": [2, 4]}


def test_nothing_is_left_of_a_prediction_that_fails(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield next(predict())
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        write_predictions(broken(), tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_an_earlier_file_alone(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    write_predictions(predict(), out)
    with pytest.raises(DataError, match="no rows to predict"):
        write_predictions(iter([]), out)
    assert pyarrow.parquet.read_table(out).num_rows == 5


def test_what_is_no_file_of_predictions_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "v1.2").mkdir()
    assert is_folder(tmp_path / "scores")
    assert is_folder(tmp_path / "v1.2")
    assert not is_folder(tmp_path / "scores.csv")


def test_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ends in \.parquet or \.csv"):
        is_folder(tmp_path / "out.json")


def test_a_model_that_does_not_give_one_output_for_each_row_is_refused() -> None:
    binder = Binder(Binding(keys=("id",)), Model().forward, Shape(COLUMNS), expand=expand)
    scorer = Scorer(lambda x: x[:1], None, ("id",))
    with pytest.raises(DataError, match="one output for each row"):
        scorer.score(Rows().take(np.arange(3)), binder)


def test_predictions_that_are_not_numbers_are_told_of_once() -> None:
    scorer = Scorer(lambda x: x, "mse", ())
    binder = Binder(Binding(), lambda x: x, Shape(("x",)), expand=expand)
    batch = Batch({"x": torch.tensor([1.0, float("nan")])}, 2)
    with pytest.warns(UserWarning, match="prediction is NaN for 1 of the first 2 rows"):
        scorer.score(batch, binder)
    scorer.score(batch, binder)
