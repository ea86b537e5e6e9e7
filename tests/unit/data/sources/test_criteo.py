"""Criteo's click logs."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_files import rows_of, write

from flambeau.data.sources.text.criteo import open_criteo
from flambeau.data.text_hash import hash_texts
from flambeau.errors import ConfigError, DataError

SMALL = {"dense_columns": 2, "id_columns": 2}


def small(tmp_path, text, **options):
    return open_criteo(write(tmp_path / "a.tsv", text), **{**SMALL, **options})


def hashed(text, column):
    return int(hash_texts(pa.array([text]), column)[0])


def test_a_log_has_a_label_13_numbers_and_26_ids(tmp_path):
    cells = ["1", *map(str, range(13)), *(f"{n:08x}" for n in range(26))]
    (row,) = rows_of(open_criteo(write(tmp_path / "day_0", "\t".join(cells))))
    assert list(row) == [
        "label",
        *(f"I{n}" for n in range(1, 14)),
        *(f"C{n}" for n in range(1, 27)),
    ]
    assert row["label"] == 1.0
    assert row["I13"] == pytest.approx(math.log(13))
    assert (row["C1"], row["C26"]) == (hashed("00000000", "C1"), hashed("00000019", "C26"))


def test_columns_have_fixed_types(tmp_path):
    kinds = [pa.float32(), pa.float32(), pa.float32(), pa.int64(), pa.int64()]
    assert small(tmp_path, "0\t1\t2\ta\tb\n").schema.types == kinds


def test_equal_texts_of_different_columns_differ(tmp_path):
    (row,) = rows_of(small(tmp_path, "0\t1\t2\taa\taa\n"))
    assert row["C1"] != row["C2"]


def test_missing_values_are_zero_and_null(tmp_path):
    found = rows_of(small(tmp_path, "0\t\t\t\t\n1\t\t5\t\tx\n"))
    assert found[0] == {"label": 0.0, "I1": 0.0, "I2": 0.0, "C1": None, "C2": None}
    assert (found[1]["I1"], found[1]["C1"], found[1]["C2"]) == (0.0, None, hashed("x", "C2"))


def test_numbers_are_logarithms_and_negative_ones_zero(tmp_path):
    values = [0, -3, 7, 4095, 4096, 1_000_000, 2.5]
    text = "".join(f"0\t{value}\t\t\t\n" for value in values)
    found = [row["I1"] for row in rows_of(small(tmp_path, text))]
    np.testing.assert_allclose(found, np.log1p(np.maximum(values, 0)), rtol=1e-6)


def test_numbers_may_stay_raw(tmp_path):
    (row,) = rows_of(small(tmp_path, "0\t-3\t\ta\tb\n", dense="raw"))
    assert row["I1"] == -3.0
    assert math.isnan(row["I2"])


def test_the_first_columns_may_be_several_labels_or_none(tmp_path):
    (row,) = rows_of(small(tmp_path, "1\t0\t1\t2\ta\tb\n", labels=["click", "buy"]))
    assert (row["click"], row["buy"]) == (1.0, 0.0)
    (row,) = rows_of(small(tmp_path, "1\t2\ta\tb\n", labels=[]))
    assert list(row) == ["I1", "I2", "C1", "C2"]


def test_without_labels_a_row_of_missing_values_is_a_row(tmp_path):
    found = rows_of(small(tmp_path, "\t\t\t\n\n\t\t\t\r\n", labels=[]))
    assert [row["C2"] for row in found] == [None, None]


def test_chosen_columns_come_in_their_order(tmp_path):
    assert rows_of(small(tmp_path, "0\t0\t0\t\t\n"), "I2", "label") == [{"I2": 0.0, "label": 0.0}]


BAD = [
    ("\t1\t2\ta\tb", "the label is not a number"),
    ("x\t1\t2\ta\tb", "the label is not a number: 'x'"),
    ("1x\t1\t2\ta\tb", "the label is not a number: '1x'"),
    ("1e99\t1\t2\ta\tb", "this number is too large for a float32: '1e99'"),
    ("1\tx\t2\ta\tb", "this is not a number: 'x'"),
    ("1\t1\t2y\ta\tb", "this is not a number: '2y'"),
    ("1\tinf\t2\ta\tb", "this is not a number: 'inf'"),
    ("1\t1\t1e99\ta\tb", "this number is too large for a float32: '1e99'"),
    ("1", "this row does not have the right number of columns: '1'; the row has 1 column"),
    ("1\t1\t2", "this row does not have the right number of columns"),
    ("1\t1\t2\ta", "this row does not have the right number of columns"),
    ("1\t1\t2\ta\tb\tc", "this row does not have the right number of columns: 'c'; the row has 6"),
    ("1\t1\t2\ta\tb\t", "this row does not have the right number of columns"),
    (b"1\t1\t2\ta\t\xff", "this text is not UTF-8: '\\\\xff'"),
    (b"1\t1\t2\t\xe2\x82\tb", "this text is not UTF-8"),
]


def spoilt(bad):
    bad = bad.encode() if isinstance(bad, str) else bad
    return b"\n".join([b"0\t1\t1\ta\tb", b"", bad, b"1\t1\t1\t\tb"])


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_a_bad_row_is_an_error_that_says_where_and_what(tmp_path, bad, message):
    source = small(tmp_path, spoilt(bad))
    with pytest.raises(DataError) as caught:
        rows_of(source)
    assert str(caught.value).startswith(f"{tmp_path / 'a.tsv'} line 3: {message}")


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_or_it_is_left_out_and_counted(tmp_path, bad, message):
    source = small(tmp_path, spoilt(bad), on_bad_row="skip")
    assert [shard.rows for shard in source.shards()] == [2]
    assert source.skipped_rows == 1
    found = rows_of(source)
    assert [row["C1"] for row in found] == [hashed("a", "C1"), None]
    assert [row["label"] for row in found] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dense": "logs"}, "dense='logs'"),
        ({"dense_columns": -1}, "dense_columns=-1: give a whole number of at least 0"),
        ({"id_columns": 2.0}, "id_columns=2.0: give a whole number"),
        ({"labels": ["I1"]}, "there is already a column 'I1'"),
        ({"labels": [], "dense_columns": 0, "id_columns": 0}, "name no column at all"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    with pytest.raises(ConfigError) as caught:
        small(tmp_path, "1\n", **options)
    assert message in str(caught.value)


TEXTS = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), max_size=20)
CELLS = st.tuples(
    st.sampled_from(["0", "1"]),
    st.one_of(st.just(""), st.integers(-5, 10**7).map(str)),
    st.one_of(st.just(""), st.integers(-5, 10**7).map(str)),
    TEXTS,
    TEXTS,
)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(CELLS, min_size=1, max_size=20),
    ending=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    size=st.integers(1, 200),
)
def test_rows_are_what_a_plain_parser_reads(tmp_path_factory, rows, ending, last, size):
    text = ending.join("\t".join(cells) for cells in rows) + (ending if last else "")
    path = write(tmp_path_factory.mktemp("rows") / "a", text)
    found = rows_of(open_criteo(path, shard_bytes=size, dense="raw", **SMALL))
    assert len(found) == len(rows)
    for row, (label, first, second, *texts) in zip(found, rows, strict=True):
        assert row["label"] == float(label)
        numbers = [float(number or "nan") for number in (first, second)]
        np.testing.assert_array_equal([row["I1"], row["I2"]], np.float32(numbers))
        names = ("C1", "C2")
        expected = [hashed(t, n) if t else None for t, n in zip(texts, names, strict=True)]
        assert [row["C1"], row["C2"]] == expected
