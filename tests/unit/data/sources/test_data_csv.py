import gzip
import pickle

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.data.sources.text import csv_lines
from flambeau.data.sources.text.csv import CsvSource
from flambeau.errors import DataError


def write(path, text):
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def read(source, *columns):
    batches = [batch for shard in source.shards() for batch in source.read(shard, columns or ["a"])]
    return pa.Table.from_batches(batches).to_pydict()


ROWS = "".join(f"{n},{n / 2}\n" for n in range(100))


def test_small_files_are_one_shard(tmp_path):
    source = CsvSource(write(tmp_path / "a.csv", "a,b\n" + ROWS))
    assert [shard.rows for shard in source.shards()] == [100]
    assert source.schema == pa.schema({"a": pa.int64(), "b": pa.float64()})


@pytest.mark.parametrize("size", [1, 7, 64, 100, 10_000])
def test_shards_are_cut_at_line_ends(tmp_path, size):
    source = CsvSource(write(tmp_path / "a.csv", "a,b\n" + ROWS), shard_bytes=size)
    assert sum(shard.rows for shard in source.shards()) == 100
    assert read(source)["a"] == list(range(100))


def test_rows_of_a_shard_can_be_cut(tmp_path):
    source = CsvSource(write(tmp_path / "a.csv", "a,b\n" + ROWS))
    cut = list(source.read(source.shards()[0], ["b"], start=98, stop=99))
    assert [batch.to_pydict() for batch in cut] == [{"b": [49.0]}]


def test_gzipped_file_is_one_shard(tmp_path):
    source = CsvSource(write(tmp_path / "a.csv.gz", "a,b\n" + ROWS), shard_bytes=10)
    assert [shard.rows for shard in source.shards()] == [100]
    assert read(source)["a"] == list(range(100))


LINES = ["1,2", "", '"x y",3', '5" pipe,4', '"a ""q"" b",5', ",", '"1","2"']


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.sampled_from(LINES), min_size=1),
    ending=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    size=st.integers(1, 50),
    mark=st.booleans(),
)
def test_rows_are_counted_as_the_parser_reads_them(
    tmp_path_factory, lines, ending, last, size, mark
):
    text = ending.join(["9,8", *lines]) + (ending if last else "")
    data = (b"\xef\xbb\xbf" if mark else b"") + text.encode()
    path = write(tmp_path_factory.mktemp("csv") / "a.csv", data)
    source = CsvSource(path, names=["a", "b"], types={"a": "string"}, shard_bytes=size)
    columns = read(source)["a"]
    assert len(columns) == sum(shard.rows for shard in source.shards()) == 1 + sum(map(bool, lines))
    assert columns[0] == "9"


def test_lines_across_blocks_are_counted_once(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_lines, "_BLOCK", 5)
    source = CsvSource(write(tmp_path / "a.csv", "a,b\r\n\r\n100000000,2\r\n\r\n3,4\r\n5,6"))
    assert [shard.rows for shard in source.shards()] == [3]


def test_header_may_follow_blank_lines_and_a_byte_order_mark(tmp_path):
    source = CsvSource(write(tmp_path / "a.csv", b"\xef\xbb\xbf\r\n\r\na,b\r\n1,2\r\n"))
    assert read(source, "b") == {"b": [2]}


def test_delimiter_and_names(tmp_path):
    source = CsvSource(write(tmp_path / "a.tsv", "1\t2\n3\t4\n"), delimiter="\t", names=["a", "b"])
    assert read(source, "b") == {"b": [2, 4]}


def test_types_of_the_first_file_hold_for_all(tmp_path):
    write(tmp_path / "a.csv", "a,b\n1.5,x\n")
    write(tmp_path / "b.csv", "b,a\ny,2\n")
    source = CsvSource(str(tmp_path))
    assert read(source, "a", "b") == {"a": [1.5, 2.0], "b": ["x", "y"]}


def test_types_can_be_given(tmp_path):
    source = CsvSource(write(tmp_path / "a.csv", "a,b\n1,2\n"), types={"a": "string"})
    assert source.schema.field("a").type == pa.string()
    for types, message in [
        ({"z": "string"}, "no column 'z'; known: a, b"),
        ({"a": "text"}, "unknown type 'text'"),
    ]:
        with pytest.raises(DataError, match=message):
            CsvSource(str(tmp_path / "a.csv"), types=types)


def test_column_without_values_is_numeric(tmp_path):
    write(tmp_path / "a.csv", "a,b\n1,\n")
    write(tmp_path / "b.csv", "a,b\n1,2.5\n")
    assert read(CsvSource(str(tmp_path)), "b") == {"b": [None, 2.5]}


def test_files_without_rows_are_skipped(tmp_path):
    write(tmp_path / "a.csv", "a,b\n")
    write(tmp_path / "b.csv", "a,b\n1,2\n")
    assert read(CsvSource(str(tmp_path))) == {"a": [1]}
    with pytest.raises(DataError, match="no rows"):
        CsvSource(str(tmp_path / "a.csv"))


def test_file_of_blank_lines_is_refused(tmp_path):
    source = CsvSource(write(tmp_path / "a.csv", "\n\n"), names=["a"])
    with pytest.raises(DataError, match="only blank lines"):
        source.shards()


def test_source_survives_pickling(tmp_path):
    source = CsvSource(write(tmp_path / "a.csv", "a,b\n1,2\n"))
    assert read(pickle.loads(pickle.dumps(source))) == {"a": [1]}


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("row", ["3", "3,4,5"])
def test_wrong_number_of_columns_names_the_line(tmp_path, name, row):
    path = write(tmp_path / name, f"a,b\n{ROWS}\n{row}\n1,2\n")
    with pytest.raises(DataError, match=rf"{name} line 103: .*Expected 2 columns"):
        read(CsvSource(path, shard_bytes=50))


def test_value_of_another_type_names_line_and_column(tmp_path):
    text = "a,b\n" + "1,2\n" * 300_000 + "1,x\n"
    source = CsvSource(write(tmp_path / "a.csv", text))
    with pytest.raises(DataError, match=r"line 300002: column 'b': .*'x'.*types="):
        read(source, "b")


@pytest.mark.parametrize("value", ['"x\ny",2', '5" p,"q\nr"', '"""x\n""y",1', '"never closed,2'])
def test_line_end_inside_quotes_names_the_line(tmp_path, value):
    path = write(tmp_path / "a.csv", f"a,b\n1,2\n\n{value}\n3,4\n")
    for size in (1, 8, 1000):
        with pytest.raises(DataError, match=r"a\.csv line 4: a quoted value continues"):
            CsvSource(path, shard_bytes=size).shards()


def test_wrong_number_of_columns_beside_quotes_names_the_line(tmp_path):
    path = write(tmp_path / "a.csv", 'a,b\n1000000,2\n"1",2\n3\n')
    with pytest.raises(DataError, match=r"line 4: .*Expected 2 columns"):
        CsvSource(path, shard_bytes=10).shards()


def test_lone_carriage_returns_are_refused(tmp_path):
    with pytest.raises(DataError, match="carriage returns"):
        CsvSource(write(tmp_path / "a.csv", "a,b\n1,2\r3,4\n")).shards()


def test_other_names_in_a_later_file(tmp_path):
    write(tmp_path / "a.csv", "a,b\n1,2\n")
    write(tmp_path / "b.csv", "a,c\n1,2\n")
    with pytest.raises(DataError, match=r"b\.csv has no column 'b'"):
        CsvSource(str(tmp_path))


def test_repeated_names_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"more than one column named 'a'; .* format='criteo'"):
        CsvSource(write(tmp_path / "a.csv", "a,a\n1,2\n"))


def test_repeated_names_that_were_given_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"more than one column named 'a'$"):
        CsvSource(write(tmp_path / "a.csv", "1,2\n"), names=["a", "a"])


def test_names_may_be_quoted(tmp_path):
    source = CsvSource(write(tmp_path / "a.csv", '"a, or ""b""",c\n1,2\n'))
    assert source.schema.names == ['a, or "b"', "c"]


@pytest.mark.parametrize(
    ("header", "message"), [(b"\xff\xfe,b\n1,2\n", "utf-8"), (b"\n\n", "empty")]
)
def test_a_first_line_without_names_is_refused(tmp_path, header, message):
    (tmp_path / "a.csv").write_bytes(header)
    with pytest.raises(DataError, match=rf"a\.csv cannot be read as CSV: .*{message}"):
        CsvSource(str(tmp_path / "a.csv"))


@pytest.mark.parametrize("cut", [20, 200, 1000])
def test_damaged_gzip_is_named(tmp_path, cut):
    path = tmp_path / "a.csv.gz"
    packed = gzip.compress(("a,b\n" + ROWS).encode())
    path.write_bytes(packed[: len(packed) - cut])
    with pytest.raises(DataError, match=r"a\.csv\.gz"):
        CsvSource(str(path)).shards()


LARGE = 2**53 + 1


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([LARGE, 5], pa.int64()),
        ([2**63, 5, ""], pa.uint64()),
        ([2**64 - 1, LARGE], pa.uint64()),
        ([2**64, LARGE], pa.string()),
        ([2**63, -5], pa.string()),
        ([-(2**63) - 1], pa.string()),
        ([2**63, 0.5], pa.float64()),
        (["+5", 7], pa.float64()),
    ],
)
@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
def test_integers_keep_their_digits(tmp_path, values, kind, on_bad_row):
    text = "b,a\n" + "".join(f"x,{value}\n" for value in values)
    source = CsvSource(write(tmp_path / "a.csv", text), on_bad_row=on_bad_row)
    assert source.schema.field("a").type == kind
    if kind != pa.float64():
        found = ["" if value is None else str(value) for value in read(source)["a"]]
        assert found == list(map(str, values))


@pytest.mark.parametrize("first", ["1", str(2**63)])
def test_a_later_integer_that_does_not_fit_is_an_error_that_names_types(tmp_path, first):
    text = "a,b\n" + f"{first},{'2' * 20}\n" * 60_000 + f"{2**64},2\n"
    with pytest.raises(DataError, match=rf"line 60002: column 'a': .*'{2**64}'.*types=\{{'a'"):
        read(CsvSource(write(tmp_path / "a.csv", text)))


@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
def test_large_integers_of_a_column_that_begins_empty_are_an_error(tmp_path, on_bad_row):
    write(tmp_path / "a.csv", "a,b\n,1\n")
    write(tmp_path / "b.csv", f"a,b\n{LARGE},1\n")
    source = CsvSource(str(tmp_path), on_bad_row=on_bad_row)
    with pytest.raises(DataError, match=r"b.csv: column 'a' .* rounds .* types=\{'a': 'int64'\}"):
        read(source)
