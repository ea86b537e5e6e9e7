"""The memory of real processes that prepare features: what it depends on, and on what not."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MB = 1 << 20
#: What allocators keep and threads need, more or less of it from run to run.
ALLOWANCE = 60 * MB

PREPARE = r"""
import re, sys
from pathlib import Path
import flambeau as fb, flambeau.features as ft

pipeline = ft.Pipeline([ft.Categorify("x"), ft.Bucketize("y", quantiles=8)])
found = pipeline.fit_transform(
    sys.argv[1], out=sys.argv[2], memory=sys.argv[3], cluster=fb.Local(1),
    split=ft.by_ratio(valid=0.1), observe={"progress": "none"},
)
assert found.rows["train"] > 0
# Not ru_maxrss, in which the process that started this one counts, too.
peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
print(found.sizes["x"], int(peak[1]) << 10)
"""


def prepare(files: Path, out: Path, memory: str) -> tuple[int, int]:
    """Prepare files in a process of its own; return the size of the vocabulary and peak bytes."""
    command = [sys.executable, "-c", PREPARE, str(files), str(out), memory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    size, peak = done.stdout.split()
    return int(size), int(peak)


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have all kernels compiled: the process that does so needs memory for the compiler."""
    folder = tmp_path_factory.mktemp("first")
    values = np.arange(1000) % 50
    for number, column in enumerate([pa.array(values), pa.array([f"x{x}" for x in values])]):
        data = folder / f"{number}.parquet"
        pq.write_table(pa.table({"x": column, "y": values / 7, "f0": values / 3}), data)
        prepare(data, folder / f"out_{number}", "1M")


def write_texts(folder: Path, rows: int) -> Path:
    """Write texts of 64 random characters, all different, in files of 100,000 rows."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for first in range(0, rows, 100_000):
        data = rng.bytes(32 * 100_000).hex().encode()
        offsets = pa.py_buffer(np.arange(0, 64 * 100_001, 64, dtype=np.int32))
        texts = pa.StringArray.from_buffers(100_000, offsets, pa.py_buffer(data))
        table = pa.table({"x": texts, "y": rng.random(100_000)})
        pq.write_table(table, folder / f"{first:08}.parquet")
    return folder


def test_a_vocabulary_may_be_many_times_larger_than_the_memory(tmp_path: Path) -> None:
    """Its index takes 18 bytes for a value, and the values themselves stay in files."""
    few, many = 200_000, 1_700_000
    _, base = prepare(write_texts(tmp_path / "few", few), tmp_path / "out_few", "16M")
    size, peak = prepare(write_texts(tmp_path / "many", many), tmp_path / "out_many", "16M")
    assert 0.89 * many < size <= many + 1
    values = (many - few) * 0.9 * (64 + 4 + 8)  # texts, their offsets, and counts
    index = (many - few) * 0.9 * 18
    assert values > ALLOWANCE + 20 * MB  # or the test would show nothing
    assert peak - base < index + ALLOWANCE
    held = pq.ParquetFile(next((tmp_path / "out_many" / "pipeline").glob("*categorify*.parquet")))
    assert held.metadata.num_rows == size - 1


@pytest.mark.parametrize("form", ["one_row_group", "many_files"])
def test_memory_does_not_grow_with_the_rows(form: str, tmp_path: Path) -> None:
    peaks = []
    for rows in (400_000, 4_000_000):
        folder = tmp_path / str(rows)
        folder.mkdir()
        rng = np.random.default_rng(0)
        count = 1 if form == "one_row_group" else 400
        for number in range(count):
            part = rows // count
            columns = {f"f{n}": rng.random(part) for n in range(4)}
            table = pa.table(
                {"x": rng.integers(0, 5000, part), "y": columns["f0"] // 0.01, **columns}
            )
            pq.write_table(table, folder / f"{number:05}.parquet", row_group_size=part)
        peaks.append(prepare(folder, tmp_path / f"out_{rows}", "32M")[1])
    written = (4_000_000 - 400_000) * 6 * 8
    assert written > 2 * ALLOWANCE
    assert peaks[1] - peaks[0] < ALLOWANCE
