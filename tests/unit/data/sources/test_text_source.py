"""What holds for all readers of sparse text: shards, blocks, packed files, and what is told."""

import itertools

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_files import rows_of, write

from flambeau.config import FileData
from flambeau.data.sources import files
from flambeau.data.sources.opening import open_source
from flambeau.data.sources.text import text_lines
from flambeau.data.sources.text.dummy import open_dummy
from flambeau.data.sources.text.libsvm import open_libsvm
from flambeau.errors import ConfigError, DataError

NUMBERS = "".join(f"{n} {n + 1}:1\n" for n in range(100))


def labels(source):
    return [int(row["label"]) for row in rows_of(source, "label")]


@pytest.mark.parametrize(("size", "shards"), [(1, 100), (7, 95), (100, 8), (10_000, 1)])
def test_shards_are_cut_at_line_ends_and_hold_each_row_once(tmp_path, size, shards):
    source = open_libsvm(write(tmp_path / "a", NUMBERS), shard_bytes=size)
    assert labels(source) == list(range(100))
    assert sum(shard.rows for shard in source.shards()) == 100
    assert len(source.shards()) == shards


def test_a_range_that_ends_with_a_line_does_not_take_the_next(tmp_path):
    source = open_dummy(write(tmp_path / "a", "1,2\n3,4\n5,6\n"), shard_bytes=4)
    assert [shard.rows for shard in source.shards()] == [1, 1, 1]


@pytest.mark.parametrize("policy", ["error", "skip"])
@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a.zst"])
@pytest.mark.parametrize("block", [1, 5, 16, 1000])
def test_blocks_do_not_change_the_rows(tmp_path, monkeypatch, policy, name, block):
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", block)
    source = open_libsvm(write(tmp_path / name, NUMBERS), on_bad_row=policy)
    assert labels(source) == list(range(100))


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_any_rows_of_a_shard_can_be_read(tmp_path, monkeypatch, policy):
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 40)
    source = open_libsvm(write(tmp_path / "a", NUMBERS), on_bad_row=policy)
    (shard,) = source.shards()
    for start, stop in itertools.product((0, 3, 4, 50, 99, 100), (0, 3, 5, 51, 100, None)):
        batches = source.read(shard, ["label"], start, stop)
        found = [int(label) for batch in batches for label in batch["label"].to_pylist()]
        assert found == list(range(100))[start:stop]


@settings(max_examples=30, deadline=None)
@given(
    lines=st.lists(st.sampled_from(["1 1:1", "", "x", "2", "  ", "3 1", "# no"]), max_size=12),
    size=st.integers(1, 30),
    block=st.integers(1, 30),
)
def test_skipping_counts_what_it_reads(tmp_path_factory, lines, size, block):
    path = write(tmp_path_factory.mktemp("skip") / "a", "\n".join(["7", *lines]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines, "BLOCK_BYTES", block)
        source = open_libsvm(path, on_bad_row="skip", shard_bytes=size)
        good = [7, *(int(line[0]) for line in lines if line in ("1 1:1", "2"))]
        assert labels(source) == good
        assert sum(shard.rows for shard in source.shards()) == len(good)
    assert source.skipped_rows == sum(line in ("x", "3 1") for line in lines)


@pytest.mark.parametrize("name", ["a.libsvm.gz", "a.svm.zst"])
def test_packed_files_are_one_shard(tmp_path, name):
    source = open_libsvm(write(tmp_path / name, NUMBERS), shard_bytes=10)
    assert [shard.rows for shard in source.shards()] == [100]
    assert labels(source) == list(range(100))


@pytest.mark.parametrize("name", ["a.gz", "a.zst"])
@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:20] + b"?" * 40])
def test_damaged_packed_files_are_errors(tmp_path, name, damage):
    path = tmp_path / name
    write(path, NUMBERS)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match="cannot be read as text"):
        open_libsvm(str(path)).shards()


def test_line_numbers_of_later_shards_and_packed_files_count_from_the_files_start(tmp_path):
    text = NUMBERS + "\nbad 1:1\n"
    for name, size in (("a", 50), ("a.gz", 50), ("a.zst", 50)):
        source = open_libsvm(write(tmp_path / name, text), shard_bytes=size)
        with pytest.raises(DataError, match="line 102: the label is not a number: 'bad'"):
            rows_of(source)


def test_line_numbers_count_a_byte_order_mark_as_nothing(tmp_path):
    source = open_libsvm(write(tmp_path / "a", b"\xef\xbb\xbf1 1:1\nbad"))
    with pytest.raises(DataError, match="line 2: the label"):
        rows_of(source)


def test_large_packed_files_are_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_LARGE", 10)
    packed = open_libsvm(write(tmp_path / "a.gz", NUMBERS))
    (warning,) = packed.warnings
    assert "a.gz" in warning
    assert "cannot be split" in warning
    assert open_libsvm(write(tmp_path / "a", NUMBERS)).warnings == ()


def test_skipped_rows_of_all_files_are_counted_once(tmp_path):
    paths = [write(tmp_path / name, "1 1:1\nx\ny\n") for name in ("a", "b")]
    source = open_libsvm(paths, on_bad_row="skip")
    source.shards()
    source.shards()
    assert source.skipped_rows == 4


@pytest.mark.parametrize(("text", "told"), [("\n \n", ""), ("x\n", ", only 1 bad row")])
def test_files_without_rows_are_errors(tmp_path, text, told):
    source = open_libsvm(write(tmp_path / "a", text), on_bad_row="skip")
    with pytest.raises(DataError) as caught:
        source.shards()
    assert str(caught.value) == f"{tmp_path / 'a'} has no rows{told}"


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_a_line_without_end_is_an_error(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 8)
    monkeypatch.setattr(text_lines, "LONGEST_LINE", 32)
    source = open_libsvm(write(tmp_path / name, "1 1:1\n" + "1" * 100))
    with pytest.raises(DataError, match="line 2 is longer than 0 MB"):
        source.shards()


def test_a_file_that_became_shorter_is_an_error(tmp_path):
    source = open_libsvm(write(tmp_path / "a", NUMBERS))
    (tmp_path / "a").write_text("1 1:1\n")
    with pytest.raises(DataError, match="cannot be read as text: "):
        source.shards()


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("a.libsvm", "1 1:1", ["label", "features"]),
        ("a.SVM", "1 1:1", ["label", "features"]),
        ("a.svm.gz", "1 1:1", ["label", "features"]),
        ("a.libffm.zst", "1 0:1:1", ["label", "features"]),
        ("a.ffm", "1 0:1:1", ["label", "features"]),
    ],
)
def test_formats_are_known_by_name(tmp_path, name, text, columns):
    source = open_source(FileData(path=write(tmp_path / name, text)), None)
    assert source.schema.names == columns
    assert len(rows_of(source)) == 1


def test_files_of_a_directory_need_no_suffix(tmp_path):
    for part, text in (("part-1", "2,1\n"), ("part-0", "1,1\n"), ("_SUCCESS", "x")):
        write(tmp_path / part, text)
    source = open_source(FileData(path=str(tmp_path), format="dummy"), None)
    assert labels(source) == [1, 2]


@pytest.mark.parametrize("form", ["libsvm", "libffm", "dummy", "criteo"])
def test_unknown_options_are_refused(tmp_path, form):
    data = FileData(path=write(tmp_path / "a", "1\n"), format=form, options={"on_bad": "skip"})
    with pytest.raises(ConfigError, match=r"unknown option 'on_bad'.*on_bad_row"):
        open_source(data, None)


@pytest.mark.parametrize("name", ["a.libsvm", "a.libsvm.gz", "a.libsvm.zst"])
def test_files_may_be_at_a_url(tmp_path, name):
    with fsspec.open(f"memory://text/{name}", "wb") as file:
        write(tmp_path / name, NUMBERS + "bad")
        file.write((tmp_path / name).read_bytes())
    data = FileData(path=f"memory://text/{name}", options={"shard_bytes": 200})
    source = open_source(data, None)
    with pytest.raises(DataError, match=f"memory://text/{name} line 101: "):
        rows_of(source)
    skipping = {"shard_bytes": 200, "on_bad_row": "skip"}
    source = open_source(data.model_copy(update={"options": skipping}), None)
    assert labels(source) == list(range(100))
