"""Which numbers stand for two classes in files of sparse text."""

import gzip
from pathlib import Path

import pytest

from flambeau.config import FileData
from flambeau.data.sources.text.label_forms import recognise

SIGNS, COUNTED = {-1.0: 0.0, 1.0: 1.0}, {1.0: 0.0, 2.0: 1.0}


def form_of(tmp_path: Path, lines: list[str], name: str = "a.libsvm", **given) -> dict:
    (tmp_path / name).write_text("\n".join(lines))
    return recognise(FileData(path=str(tmp_path / name), **given), ("label",))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["1", "-1"], SIGNS),
        (["+1", "-1.0"], SIGNS),
        (["-1", "-1"], SIGNS),
        (["1", "1", "2"], COUNTED),
        (["0", "1"], {}),
        (["1", "0", "-1"], {}),
        (["1", "1"], {}),
        (["0.5", "2"], {}),
        (["1", "3"], {}),
    ],
)
def test_the_first_label_that_is_not_1_decides(labels, expected, tmp_path):
    assert form_of(tmp_path, [f"{label} 3:1" for label in labels]) == expected


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("a.libsvm", "-1 1:1 2:0.5"),
        ("a.libfm", "-1 0:1"),
        ("a.ffm", "-1 0:1:1"),
        ("a.dummy", "-1,3,4"),
        ("a.dummy", "-1 3 4"),
        ("a.dummy", "-1"),
        ("a.libsvm", "# a comment\n\n-1 1:1"),
        ("a.libsvm", "\ufeff-1 1:1"),
        ("a.libsvm", "bad row\n-1 1:1"),
    ],
)
def test_rows_of_all_formats_are_read(name, row, tmp_path):
    assert form_of(tmp_path, [row], name) == SIGNS


def test_other_formats_say_themselves_what_labels_are(tmp_path):
    assert form_of(tmp_path, ["label,x", "-1,2"], "a.csv") == {}


def test_only_the_columns_in_use_are_looked_at(tmp_path):
    path = tmp_path / "a.libsvm"
    path.write_text("-1#0 1:1\n")
    data = FileData(path=str(path), options={"labels": ["click", "bought"]})
    assert recognise(data, ("click",)) == SIGNS
    assert recognise(data, ("bought",)) == {}


def test_several_files_packed_ones_among_them_are_one_sample(tmp_path):
    (tmp_path / "a.libsvm").write_text("1 3:1\n" * 3)
    (tmp_path / "b.libsvm.gz").write_bytes(gzip.compress(b"1 3:1\n2 3:1\n"))
    assert recognise(FileData(path=str(tmp_path), format="libsvm"), ("label",)) == COUNTED
