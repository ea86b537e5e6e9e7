from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from flambeau.errors import CheckpointError
from flambeau.inference.exported_tables import (
    ExportedFile,
    ExportedTable,
    as_stored,
    changed_ids,
    write_table,
)

DEFAULT = np.full(2, 9, np.float32)


class Rows:
    """Rows in memory."""

    def __init__(self, rows: dict[int, float]) -> None:
        self.rows = rows

    def pull(self, ids: Any) -> np.ndarray:
        return np.array([[self.rows.get(int(i), 9.0)] * 2 for i in ids], np.float32).reshape(-1, 2)

    def has(self, ids: Any) -> np.ndarray:
        return np.array([int(i) in self.rows for i in ids], bool)

    def ids(self) -> np.ndarray:
        return np.array(sorted(self.rows), np.int64)


def opened(path: Path, *older: ExportedFile) -> ExportedTable:
    return ExportedTable(DEFAULT, [ExportedFile(path), *older])


ROWS = st.dictionaries(st.integers(-5, 5), st.integers(-3, 3).map(float), max_size=8)


@settings(max_examples=20)
@given(first=ROWS, second=ROWS)
def test_a_delta_on_its_base_is_the_new_table(
    tmp_path_factory: pytest.TempPathFactory, first: dict[int, float], second: dict[int, float]
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    old, new, every = Rows(first), Rows(second), np.arange(-6, 7)
    write_table(folder / "a", old.ids(), old, "fp32", None)
    base = opened(folder / "a")
    np.testing.assert_array_equal(base.pull(every), old.pull(every))
    changed = changed_ids(new.ids(), new, base, "fp32")
    removed = base.ids()[~new.has(base.ids())]
    assert set(changed) == {i for i in second if first.get(i) != second[i]}
    write_table(folder / "b", changed, new, "fp32", removed)
    both = opened(folder / "b", ExportedFile(folder / "a"))
    np.testing.assert_array_equal(both.pull(every), new.pull(every))
    np.testing.assert_array_equal(both.ids(), new.ids())


@pytest.mark.parametrize(("stored", "error"), [("fp32", 0), ("bf16", 2**-8), ("int8", 1 / 254)])
def test_values_are_off_by_what_their_type_leaves_out(stored: Any, error: float) -> None:
    values = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    largest = np.abs(values).max(axis=1, keepdims=True)
    gap = np.abs(as_stored(values, stored) - values)
    assert (gap <= error * largest + 1e-7).all()


def test_int8_has_a_scale_for_each_row_and_zeros_stay_zeros(tmp_path: Path) -> None:
    rows = Rows({1: 0.0, 2: 12.7})
    write_table(tmp_path / "t", rows.ids(), rows, "int8", None)
    found = load_file(tmp_path / "t")
    assert found["values"].tolist() == [[0, 0], [127, 127]]
    assert found["scales"].tolist() == pytest.approx([1, 0.1])
    assert opened(tmp_path / "t").pull(rows.ids())[0].tolist() == [0, 0]


def test_what_is_no_table_of_an_export_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(CheckpointError, match="not a table of an export"):
        ExportedFile(tmp_path / "t")
    with pytest.raises(CheckpointError, match="cannot be read"):
        ExportedFile(tmp_path / "missing")
