"""Who may write predictions into a folder."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flambeau.coordination.payloads import Part
from flambeau.errors import ConfigError
from flambeau.inference.predictions_folder import PredictionsFolder


def parts(count: int) -> list[Part]:
    return [Part(number, number, number + 1, 2) for number in range(count)]


def write(folder: PredictionsFolder, part: Part) -> None:
    pq.write_table(pa.table({"prediction": [1.0, 2.0]}), folder.path / part.file_name)


def test_the_same_predictions_go_on_with_what_is_not_there(tmp_path: Path) -> None:
    folder = PredictionsFolder(tmp_path / "out", {"data": "a"})
    first, second = folder.begin(parts(2))
    write(folder, first)
    assert folder.begin(parts(2)) == [second]
    write(folder, second)
    assert folder.begin(parts(2)) == []
    assert folder.complete(parts(2)) == 4


def test_others_may_begin_where_nothing_was_written(tmp_path: Path) -> None:
    PredictionsFolder(tmp_path / "out", {"data": "a"}).begin(parts(1))
    other = PredictionsFolder(tmp_path / "out", {"data": "b"})
    write(other, other.begin(parts(1))[0])
    with pytest.raises(ConfigError, match="other predictions: data is 'b' there and 'a' now"):
        PredictionsFolder(tmp_path / "out", {"data": "a"}).begin(parts(1))


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="is not empty, and holds no predictions"):
        PredictionsFolder(tmp_path, {}).begin(parts(1))
