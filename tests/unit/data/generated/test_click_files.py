"""The files of a generated click log."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from flambeau.data.generated import ClickLog, Truth, generate_clicks
from flambeau.data.generated.drawing import MISSING_NUMBER, DrawnRows
from flambeau.data.generated.text_rows import as_lines
from flambeau.data.generated.writing import write_log
from flambeau.errors import DataError

SMALL: dict[str, Any] = {"rows": 3_000, "ids": 2_000, "days": 3}
BOTH: Any = ("click", "conversion")


PINNED_SCORES: dict[str, dict[str, Any]] = {
    "click": {"rows": 3000, "positives": 755, "auc": 0.814698, "logloss": 0.434321},
    "conversion": {"rows": 3000, "positives": 157, "auc": 0.8542, "logloss": 0.157979},
    "conversion_after_click": {"rows": 755, "positives": 157, "auc": 0.717455, "logloss": 0.458622},
}
PINNED_LINES = (
    (
        "0\t0\t4\t-2\t506\t15\t10\t3\t60\t188\t3\t0\t2\t2\t\t57b75a78\tb7eabdd6\t2856294f"
        "\t5ba2818a\t79cd77f0\t9e704dad\t61fc51a6\t112ae600\t8e3c739b\t710e70aa\t4011b07c"
        "\t166e0924\t1a6947c3\tb12586ec\t4be85dd3\t4d4e14c8\t0280b91d\t3620ab85\t03c60139"
        "\ta8e41b7e\t1ac7cf9f\t9cea6179\t8113061d\tfcca191f\t47aa25a8\t6f363796"
    ),
    (
        "0\t0\t0\t88\t6\t35\t421\t11\t26\t3350\t14\t0\t17\t84\t0\tbfec4424\tb7eabdd6"
        "\td9a95057\tf411d1b1\ta6e5db20\t\te4bb174f\t2f3245b8\t60ea6f3e\t746b61c6\tb0cc3840"
        "\t166e0924\tad81ed3c\tb12586ec\t97d43fb2\t4d4e14c8\t42e929ac\t56220df9\tfbf19447"
        "\tc9a49472\tae4f610a\td08c376c\t60bc8f54\tc38da785\t7e8c8de3\t15843516"
    ),
)


def ignore(rows: int) -> None:
    """No progress is shown."""


def texts(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("day_*.tsv"))]


def test_lines_have_label_numbers_and_ids(tmp_path: Path) -> None:
    generate_clicks(tmp_path, **SMALL)
    for text in texts(tmp_path):
        for line in text.decode().splitlines():
            label, *rest = line.split("\t")
            assert label in ("0", "1")
            assert len(rest) == 39
            assert all(re.fullmatch(r"(-?\d+)?", number) for number in rest[:13])
            assert all(re.fullmatch(r"([0-9a-f]{8})?", code) for code in rest[13:])


def test_days_are_files_of_as_many_rows(tmp_path: Path) -> None:
    generate_clicks(tmp_path, **SMALL)
    assert [text.count(b"\n") for text in texts(tmp_path)] == [1_000, 1_000, 1_000]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["day_0.tsv", "day_1.tsv", "day_2.tsv", "truth.json"]


def test_the_same_settings_give_the_same_bytes_in_any_chunks(tmp_path: Path) -> None:
    truths = []
    for size in (3_000, 77):
        (tmp_path / str(size)).mkdir()
        truths.append(write_log(ClickLog(**SMALL), tmp_path / str(size), size, ignore))
    assert texts(tmp_path / "3000") == texts(tmp_path / "77")
    assert truths[0] == truths[1]


def test_another_seed_gives_other_bytes(tmp_path: Path) -> None:
    for seed in (0, 1):
        generate_clicks(tmp_path / str(seed), **SMALL, seed=seed)
    assert texts(tmp_path / "0") != texts(tmp_path / "1")


def test_numbers_are_written_in_full() -> None:
    numbers = np.array([[0, -2, 9, 10, 2_147_483_647, MISSING_NUMBER]], np.int32)
    codes = np.array([[0x0000BEEF, 1]], np.uint32)
    rows = DrawnRows(codes, np.array([[True, False]]), numbers, np.empty((1, 4)), np.empty((1, 2)))
    assert bytes(as_lines(np.array([[1]], np.uint8), rows)) == (
        b"1\t0\t-2\t9\t10\t2147483647\t\t0000beef\t\n"
    )


def test_conversions_come_after_clicks_only_and_leave_the_clicks_as_they_are(
    tmp_path: Path,
) -> None:
    generate_clicks(tmp_path / "one", **SMALL)
    truth = generate_clicks(tmp_path / "two", **SMALL, labels=BOTH)
    one = b"".join(texts(tmp_path / "one")).splitlines()
    two = b"".join(texts(tmp_path / "two")).splitlines()
    labels = [line.split(b"\t", 2)[:2] for line in two]
    assert [line[:2] + line[4:] for line in two] == one
    assert [b"0", b"1"] not in labels
    assert truth.overall["conversion"].positives == labels.count([b"1", b"1"]) > 0


def test_parquet_has_the_same_rows_with_day_and_number(tmp_path: Path) -> None:
    generate_clicks(tmp_path / "text", **SMALL, labels=BOTH)
    generate_clicks(tmp_path / "columns", **SMALL, labels=BOTH, format="parquet")
    paths = sorted((tmp_path / "columns").glob("*.parquet"))
    table = pa.concat_tables(pq.read_table(path) for path in paths)
    numbers = [f"I{j}" for j in range(1, 14)]
    codes = [f"C{f}" for f in range(1, 27)]
    assert table.column_names == ["click", "conversion", *numbers, *codes, "day", "row"]
    assert table["row"].to_pylist() == list(range(3_000))
    assert table["day"].to_pylist() == [day for day in range(3) for _ in range(1_000)]
    kinds = {name: pa.float32() for name in numbers} | {name: pa.string() for name in codes}
    read = csv.read_csv(
        pa.py_buffer(b"".join(texts(tmp_path / "text"))),
        csv.ReadOptions(column_names=table.column_names[:-2]),
        csv.ParseOptions(delimiter="\t"),
        csv.ConvertOptions(column_types=kinds, strings_can_be_null=True),
    )
    assert table.drop_columns(["day", "row"]).equals(read)


def test_one_task_is_a_label(tmp_path: Path) -> None:
    generate_clicks(tmp_path, rows=10, days=1, ids=30, format="parquet")
    assert pq.read_schema(tmp_path / "day_0.parquet").names[0] == "label"


def test_the_truth_counts_what_is_in_the_files(tmp_path: Path) -> None:
    truth = generate_clicks(tmp_path, **SMALL)
    positives = [sum(line[:1] == b"1" for line in text.splitlines()) for text in texts(tmp_path)]
    assert [day["click"].positives for day in truth.by_day] == positives
    assert truth.overall["click"].positives == sum(positives)
    assert truth.overall["click"].rows == 3_000
    assert truth == Truth.read(tmp_path / "truth.json")
    assert json.loads((tmp_path / "truth.json").read_text())["settings"]["ids"] == 2_000


def test_the_constants_of_the_world_have_not_changed(tmp_path: Path) -> None:
    truth = generate_clicks(tmp_path, **SMALL, labels=BOTH)
    assert {task: score.model_dump() for task, score in truth.overall.items()} == PINNED_SCORES
    first, *_, last = b"".join(texts(tmp_path)).decode().splitlines()
    assert (first, last) == PINNED_LINES


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"not empty: it has notes\.txt.*force=True"):
        generate_clicks(tmp_path, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_force_replaces_a_log_and_nothing_else(tmp_path: Path) -> None:
    generate_clicks(tmp_path, rows=100, ids=100, days=5)
    (tmp_path / "notes.txt").write_text("mine")
    generate_clicks(tmp_path, rows=100, ids=100, days=1, format="parquet", force=True)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["day_0.parquet", "notes.txt", "truth.json"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="file is a file; name a folder"):
        generate_clicks(tmp_path / "file", **SMALL)


def test_progress_is_told_all_rows(tmp_path: Path) -> None:
    told: list[int] = []
    generate_clicks(tmp_path, **SMALL, progress=told.append)
    assert sum(told) == 3_000
