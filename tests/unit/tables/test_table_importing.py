"""Tables that begin with the vectors of a file."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flambeau.config.tables import TableSpec
from flambeau.errors import DataError
from flambeau.tables.saved import importing
from flambeau.tables.saved.importing import import_vectors
from flambeau.tables.table import Table

LISTS = [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float16(), 2)]


def table(**fields: Any) -> Table:
    return Table(TableSpec("t", 2, **fields), 0)


def everyone(ids: np.ndarray) -> np.ndarray:
    return np.ones(ids.size, bool)


def written(folder: Path, ids: Any, vectors: Any, kind: Any = LISTS[0]) -> Path:
    path = folder / "vectors.parquet"
    columns = {"id": ids, "vector": pa.array(vectors, kind)}
    pq.write_table(pa.table(columns), path, row_group_size=4)
    return path


@pytest.mark.parametrize("kind", LISTS, ids=str)
def test_every_kind_of_list_is_read(tmp_path: Path, kind: Any) -> None:
    numbers = np.arange(20, dtype=np.float16).reshape(10, 2)
    path = written(tmp_path, np.arange(-5, 5), list(numbers), kind)
    subject = table()
    assert import_vectors(subject, path, everyone) == 10
    np.testing.assert_array_equal(subject.pull(np.arange(-5, 5), training=False), numbers)


def test_only_rows_that_are_kept_are_loaded(tmp_path: Path) -> None:
    path = written(tmp_path, np.arange(10), [[1.0, 1.0]] * 10)
    subject = table()
    assert import_vectors(subject, path, lambda ids: ids % 2 == 0) == 5
    assert len(subject) == 5


def test_of_equal_ids_the_last_one_counts_across_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "ROWS_AT_ONCE", 2)
    path = written(tmp_path, [1, 2, 1, 3, 3, 1], [[float(i)] * 2 for i in range(6)])
    subject = table()
    import_vectors(subject, path, everyone)
    assert subject.pull(np.array([1, 2, 3]), training=False)[:, 0].tolist() == [5.0, 1.0, 4.0]


@pytest.mark.parametrize(
    ("ids", "vectors", "message"),
    [
        ([1, None], [[1.0, 2.0]] * 2, "1 row without an id"),
        ([1.5], [[1.0, 2.0]], "column 'id' is double, and must be int64"),
        ([1, 2], [[1.0, 2.0], [1.0]], "vector of id 2 is 1 long, and table 't' has dim=2"),
        ([1, 2], [[1.0, 2.0], None], "vector of id 2 is null"),
        ([1, 2], [[1.0, 2.0], [1.0, None]], "vector of id 2 has numbers that are null"),
        ([4], [[1.0, float("inf")]], "vector of id 4 has numbers"),
        (pa.array([2**63], pa.uint64()), [[1.0, 2.0]], "an id does not fit into int64"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, ids: Any, vectors: Any, message: str) -> None:
    path = written(tmp_path, ids, vectors)
    with pytest.raises(DataError, match=message):
        import_vectors(table(), path, everyone)


def test_numbers_that_are_not_lists_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "flat.parquet"
    pq.write_table(pa.table({"id": [1], "vector": [1.0]}), path)
    with pytest.raises(DataError, match="column 'vector' is double, and must be list<float>"):
        import_vectors(table(), path, everyone)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"id": [1], "embedding": [[1.0]]}), path)
    with pytest.raises(DataError, match=r"no column 'vector' \(it has: id, embedding\)"):
        import_vectors(table(), path, everyone)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.parquet' cannot be opened"):
        import_vectors(table(), tmp_path / "nowhere.parquet", everyone)


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text.parquet"
    path.write_text("id,vector\n" * 10)
    with pytest.raises(DataError, match="is not a Parquet file"):
        import_vectors(table(), path, everyone)
