"""libsvm, libffm and dummy files."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_files import bag, rows_of, write

from flambeau.data.arrow_columns import to_columns
from flambeau.data.jagged import Jagged
from flambeau.data.sources.text.dummy import open_dummy
from flambeau.data.sources.text.libffm import open_libffm
from flambeau.data.sources.text.libsvm import open_libsvm
from flambeau.errors import ConfigError, DataError

OPEN = {"libsvm": open_libsvm, "libffm": open_libffm, "dummy": open_dummy}


def read_text(tmp_path, text, form="libsvm", **options):
    return rows_of(OPEN[form](write(tmp_path / "a.txt", text), **options))


def test_libsvm_has_ids_that_count_from_one_and_values(tmp_path):
    found = read_text(tmp_path, "1 1:0.5 7:-2\n0 3:1\n")
    assert found == [
        {"label": 1.0, "features": bag((0, 0.5), (6, -2.0))},
        {"label": 0.0, "features": bag((2, 1.0))},
    ]


def test_ids_may_count_from_zero(tmp_path):
    assert read_text(tmp_path, "1 0:1\n", first_id=0)[0]["features"] == bag((0, 1.0))


def test_libffm_has_fields_as_they_are(tmp_path):
    found = read_text(tmp_path, "1 0:1:0.5\t12:7:1\n", "libffm")
    assert found == [{"label": 1.0, "features": bag((0, 0.5, 0), (6, 1.0, 12))}]


@pytest.mark.parametrize("text", ["1,0,5,3", "1 0 5 3", "1\t0\t5\t3", "1, 0 , 5,3 ", "1,0 5,3"])
def test_dummy_has_ids_from_zero_between_commas_or_blanks(tmp_path, text):
    assert read_text(tmp_path, text, "dummy") == [{"label": 1.0, "features": bag((0,), (5,), (3,))}]


@pytest.mark.parametrize(
    ("form", "members"),
    [
        ("libsvm", {"id": pa.int64(), "value": pa.float32()}),
        ("libffm", {"id": pa.int64(), "value": pa.float32(), "field": pa.int64()}),
        ("dummy", {"id": pa.int64()}),
    ],
)
def test_the_schema_is_known_without_reading(tmp_path, form, members):
    source = OPEN[form](write(tmp_path / "a", "not read"))
    bags = pa.list_(pa.struct(list(members.items())))
    assert source.schema == pa.schema({"label": pa.float32(), "features": bags})


def test_bags_become_jagged_columns(tmp_path):
    source = open_libffm(write(tmp_path / "a", "1 4:1:0.5 2:3:1\n0\n1 0:1:1\n"))
    (batch,) = source.read(source.shards()[0], ["features"], start=1)
    column = to_columns(batch)["features"]
    assert isinstance(column, Jagged)
    assert [part.tolist() for part in (column.ids, column.offsets)] == [[0], [0, 0, 1]]
    assert column.values.tolist() == [1.0]
    assert column.fields.tolist() == [0]


@pytest.mark.parametrize("form", OPEN)
def test_a_row_may_have_no_ids(tmp_path, form):
    found = read_text(tmp_path, "1\n0 \n", form)
    assert [row["features"] for row in found] == [[], []]


@pytest.mark.parametrize("form", OPEN)
def test_blank_lines_are_no_rows_and_lines_may_end_as_on_windows(tmp_path, form):
    found = read_text(tmp_path, "\r\n1\r\n \t \n\n0\r\n-1\r", form)
    assert [row["label"] for row in found] == [1.0, 0.0, -1.0]


def test_a_byte_order_mark_is_skipped(tmp_path):
    assert read_text(tmp_path, b"\xef\xbb\xbf1 2:1")[0]["label"] == 1.0


def test_comments_are_skipped_with_one_label(tmp_path):
    found = read_text(tmp_path, "# made by hand\n1 3:1 # note 5:x\n  # more\n0 4:1 #\n")
    assert [row["features"] for row in found] == [bag((2, 1.0)), bag((3, 1.0))]


@pytest.mark.parametrize(
    ("form", "items"), [("libsvm", " 3:1"), ("libffm", " 0:3:1"), ("dummy", ",2")]
)
def test_joined_labels_have_a_column_each(tmp_path, form, items):
    (row,) = read_text(tmp_path, f"1#0#0.5{items}\n", form, labels=["a", "b", "c"])
    assert (row["a"], row["b"], row["c"], row["features"][0]["id"]) == (1.0, 0.0, 0.5, 2)


BAD = {
    "libsvm": [
        ("x 1:1", "the label is not a number: 'x'"),
        ("1x 1:1", "this is not a number: 'x'"),
        (":1 1:1", "the label is not a number: ':1'"),
        ("nan 1:1", "the label is not a number: 'nan'"),
        ("1 1", "a colon is missing: '1'; a row is 'label id:value ...'"),
        ("1 a:1", "this is not a number: 'a:1'"),
        ("1 1:", "this is not a number: '1:'"),
        ("1 1:a", "this is not a number: '1:a'"),
        ("1 1:1.5.2", "this is not a number: '.2'"),
        ("1 1:1e", "this is not a number: '1:1e'"),
        ("1 1:.", "this is not a number: '1:.'"),
        ("1 1:inf", "this is not a number: '1:inf'"),
        ("1 1:nan", "this is not a number: '1:nan'"),
        ("1 1:1e39", "this number is too large for a float32: '1:1e39'"),
        ("1 1:1:1", "there is one colon too many: ':1'"),
        ("1 1:1,2:1", "this is not a number: ',2:1'"),
        ("1 1:1\r2:1", "this is not a number: '2:1'"),
        ("1 0:1", "an id is below first_id (if ids start at 0, give the option first_id=0): '0:1'"),
        ("1 -1:1", "an id is negative: '-1:1'"),
        ("1 9223372036854775808:1", "an id is larger than 2**63 - 1: '9223372036854775808:1'"),
        ("1 99999999999999999999999:1", "an id is larger than 2**63 - 1"),
        ("1 qid:7 1:1", "groups (qid:) are not read"),
        ("1#0 1:1", "several labels are joined with '#': name them with the option labels=[...]"),
        (b"1 1:\xff", "this is not a number: '1:\\\\xff'"),
        ("1 " + "x" * 100, "this is not a number: '" + "x" * 57 + "...'"),
    ],
    "libffm": [
        ("1 1:1", "a colon is missing: '1:1'; a row is 'label field:id:value ...'"),
        ("1 1", "a colon is missing: '1'"),
        ("1 0:0:1", "an id is below first_id"),
        ("1 0:-1:1", "an id is negative: '0:-1:1'"),
        ("1 -2:1:1", "an id is negative: '-2:1:1'"),
        ("1 0:1:1:1", "there is one colon too many: ':1'"),
        ("1 0::1", "this is not a number: '0::1'"),
        ("1 0:1:x", "this is not a number: '0:1:x'"),
        ("1 9223372036854775808:1:1", "an id is larger than 2**63 - 1"),
        (b"1 0:\xe9:1", "this is not a number: '0:\\\\xe9:1'"),
    ],
    "dummy": [
        ("1,-1", "an id is negative: '-1'"),
        ("1,x", "this is not a number: 'x'; a row is 'label,id,id,...'"),
        ("1,,2", "this is not a number: ',2'"),
        ("1,2,", "this is not a number: '1,2,'"),
        (",1", "the label is not a number: ',1'"),
        ("1 1:1", "there is one colon too many: ':1'"),
        ("1,9223372036854775808", "an id is larger than 2**63 - 1"),
        ("1#0,3", "several labels are joined with '#'"),
        (b"\xff,3", "the label is not a number: '\\\\xff,3'"),
    ],
}
CASES = [(form, bad, message) for form, cases in BAD.items() for bad, message in cases]
GOOD = {"libsvm": b"1 2:1", "libffm": b"1 0:2:1", "dummy": b"1,1"}


def spoilt(form, bad):
    bad = bad.encode() if isinstance(bad, str) else bad
    return b"\n".join([GOOD[form], b"", bad, GOOD[form]])


@pytest.mark.parametrize(("form", "bad", "message"), CASES)
def test_a_bad_row_is_an_error_that_says_where_and_what(tmp_path, form, bad, message):
    path = write(tmp_path / "a", spoilt(form, bad))
    with pytest.raises(DataError) as caught:
        rows_of(OPEN[form](path))
    assert str(caught.value).startswith(f"{path} line 3: {message}")
    for way_out in ("options={'on_bad_row': 'skip'}", "--option on_bad_row=skip"):
        assert way_out in str(caught.value)


@pytest.mark.parametrize(("form", "bad", "message"), CASES)
def test_or_it_is_left_out_and_counted(tmp_path, form, bad, message):
    source = OPEN[form](write(tmp_path / "a", spoilt(form, bad)), on_bad_row="skip")
    assert [shard.rows for shard in source.shards()] == [2]
    assert source.skipped_rows == 1
    assert [row["features"][0]["id"] for row in rows_of(source)] == [1, 1]


def test_rows_must_have_all_labels(tmp_path):
    for text in ("1#0 3:1", "1#0#1#1 3:1", "# note"):
        with pytest.raises(DataError, match="line 1"):
            read_text(tmp_path, text, labels=["a", "b", "c"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first_id": -1}, "first_id=-1: give a whole number of at least 0"),
        ({"first_id": "1"}, "first_id='1': give a whole number"),
        ({"first_id": True}, "first_id=True: give a whole number"),
        ({"labels": "click"}, "labels='click': give a list of column names"),
        ({"labels": []}, "at least 1 column name"),
        ({"labels": ["a", "a"]}, "there is already a column 'a'"),
        ({"labels": ["features"]}, "there is already a column 'features'"),
        ({"on_bad_row": "skipp"}, "on_bad_row='skipp'"),
        ({"shard_bytes": 0}, "shard_bytes=0: give a whole number of at least 1"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    with pytest.raises(ConfigError) as caught:
        open_libsvm(write(tmp_path / "a", "1\n"), **options)
    assert message in str(caught.value)


FLOATS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**25), 10**25).map(str),
    st.decimals(-1000, 1000, places=25).map(str),
    st.sampled_from(["+1", ".5", "5.", "-0", "1e-60", "0e99", "1E+2", "00001.50", "3.4028235e38"]),
)
ITEMS = st.tuples(st.integers(0, 100), st.integers(1, 2**63 - 1), FLOATS)
ROWS = st.lists(st.tuples(FLOATS, st.lists(ITEMS, max_size=5)), min_size=1, max_size=8)


def plain_text(form, rows, between):
    shape = {"libsvm": "{1}:{2}", "libffm": "{0}:{1}:{2}", "dummy": "{1}"}[form]
    return [between.join([label, *(shape.format(*item) for item in bags)]) for label, bags in rows]


def plain_row(form, label, items):
    """What a row is, by Python's own numbers."""
    first = 0 if form == "dummy" else 1
    values = [np.float32(float(value)) for _, _, value in items]
    return (
        np.float32(float(label)),
        [number - first for _, number, _ in items],
        [] if form == "dummy" else values,
        [field for field, _, _ in items] if form == "libffm" else [],
    )


@pytest.mark.parametrize("form", OPEN)
@settings(max_examples=40, deadline=None)
@given(
    rows=ROWS,
    between=st.sampled_from([" ", "\t", "  "]),
    ending=st.sampled_from(["\n", "\r\n", "\n\n"]),
    last=st.booleans(),
    size=st.integers(1, 200),
)
def test_rows_are_what_a_plain_parser_reads(
    tmp_path_factory, form, rows, between, ending, last, size
):
    text = ending.join(plain_text(form, rows, between)) + (ending if last else "")
    path = write(tmp_path_factory.mktemp("rows") / "a", text)
    source = OPEN[form](path, shard_bytes=size)
    found = rows_of(source)
    assert sum(shard.rows for shard in source.shards()) == len(found) == len(rows)
    for row, (label, items) in zip(found, rows, strict=True):
        expected = plain_row(form, label, items)
        assert [item["id"] for item in row["features"]] == expected[1]
        assert [item["field"] for item in row["features"] if "field" in item] == expected[3]
        values = [row["label"], *(item["value"] for item in row["features"] if "value" in item)]
        np.testing.assert_array_max_ulp(np.float32(values), np.float32([expected[0], *expected[2]]))


def test_sources_survive_pickling(tmp_path):
    source = open_libsvm(write(tmp_path / "a", "1 1:1\n2 2:1\n"), shard_bytes=1)
    again = pickle.loads(pickle.dumps(source))
    assert again.shards() == source.shards()
    assert rows_of(again) == rows_of(source)
