"""Bytes of local and remote files, and which files a URL stands for."""

import gzip
import sys
import zipfile

import fsspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.data.sources import files, urls
from flambeau.data.sources.paths import find_files
from flambeau.errors import DataError, MissingDependencyError

CONTENT = bytes(range(256)) * 100
PACKED = {
    "": CONTENT,
    ".gz": gzip.compress(CONTENT),
    ".zst": pa.compress(CONTENT, codec="zstd", asbytes=True),
}


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture(params=["local", "memory"])
def place(request, tmp_path, memory):
    """Writes a file and gives its path or URL."""

    def write(name, data):
        if request.param == "memory":
            memory.pipe(f"/x/{name}", data)
            return f"memory://x/{name}"
        (tmp_path / name).write_bytes(data)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://bucket/a.csv", True),
        ("http://host/a?b=c", True),
        ("simplecache::s3://bucket/a.csv", True),
        ("data/a.csv", False),
        ("/data/a.csv", False),
        ("module:function", False),
        ("a::b.csv", False),
        ("file:///data/a.csv", False),
    ],
)
def test_what_a_url_is(path, expected):
    assert files.is_url(path) is expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.csv", None),
        ("a.csv.gz", "gzip"),
        ("A.CSV.GZ", "gzip"),
        ("s3://b/a.zst", "zstd"),
        ("http://h/a.csv.zst?signature=a.gz", "zstd"),
        ("http://h.gz/a", None),
        ("zip://a.csv.gz::s3://b/x.zip", "gzip"),
    ],
)
def test_the_name_says_how_a_file_is_compressed(path, expected):
    assert files.compression_of(path) == expected


@pytest.mark.parametrize("suffix", PACKED)
def test_a_stream_gives_the_decompressed_content(place, suffix):
    path = place(f"a{suffix}", PACKED[suffix])
    assert files.open_stream(path).read() == CONTENT
    with files.open_lines(path) as lines:
        assert b"".join(lines) == CONTENT


def test_a_stream_can_be_read_in_pieces(place, monkeypatch):
    monkeypatch.setattr(files, "_STREAMED", 1000)
    stream = files.open_stream(place("a", CONTENT))
    assert b"".join(iter(lambda: stream.read(77), b"")) == CONTENT


def test_ranges_and_sizes(place):
    path = place("a", CONTENT)
    assert files.size_of(path) == len(CONTENT)
    assert files.read_bytes(path, 250, 260).to_pybytes() == CONTENT[250:260]
    assert files.read_bytes(path, 7, 7).to_pybytes() == b""
    assert files.open_range(path, 250, 260).read() == CONTENT[250:260]
    assert files.first_bytes(path, 3) == CONTENT[:3]
    assert files.first_bytes(path, 10**6) == CONTENT


def test_local_bytes_are_mapped_and_not_copied(tmp_path):
    (tmp_path / "a").write_bytes(CONTENT)
    before = pa.total_allocated_bytes()
    buffer = files.read_bytes(str(tmp_path / "a"), 1, 20_000)
    assert buffer.size == 19_999
    assert pa.total_allocated_bytes() == before
    assert files.open_random(str(tmp_path / "a")) == str(tmp_path / "a")


def test_a_remote_file_is_read_at_any_place(memory, monkeypatch):
    monkeypatch.setattr(files, "_RANDOM", 100)
    memory.pipe("/a", CONTENT)
    file = files.open_random("memory://a")
    for start, size in [(25_000, 900), (0, 10), (5, 10), (25_590, 10), (25_590, 50), (90, 20)]:
        assert file.read_at(size, start) == CONTENT[start : start + size]


@settings(max_examples=30)
@given(
    block=st.integers(1, 50),
    kept=st.integers(1, 3),
    reads=st.lists(st.tuples(st.integers(0, 110), st.integers(0, 60)), max_size=8),
)
def test_any_reads_give_what_the_file_holds(block, kept, reads):
    fsspec.filesystem("memory").pipe("/any", CONTENT[:130])
    file = files.RemoteFile("memory://any", block, 20, 120, kept=kept)
    for start, size in reads:
        file.seek(start)
        assert file.read(size) == CONTENT[20:120][start : start + size]
    file.seek(-3, 2)
    assert (file.tell(), file.read()) == (97, CONTENT[117:120])


def test_small_reads_nearby_are_one_request(file_server):
    file_server.files["a"] = CONTENT
    file = files.open_random(f"{file_server.url}/a")
    asked = len(file_server.asked)
    for start in (25_500, 25_000, 24_000):
        file.read_at(50, start)
    assert len(file_server.asked) == asked + 1


def test_a_directory_url_is_all_files_below_it(memory):
    for name in ("b.csv", "a.csv", "s/c.csv.gz", "_SUCCESS.csv", ".hidden.csv", "notes.txt"):
        memory.pipe(f"/d/{name}", b"1")
    expected = ["memory://d/a.csv", "memory://d/b.csv", "memory://d/s/c.csv.gz"]
    assert find_files("memory://d", (".csv", ".csv.gz")) == expected
    assert find_files("memory://d/", (".csv", ".csv.gz")) == expected


def test_a_glob_url_is_its_matches(memory):
    for name in ("day-2.csv", "day-1.csv", "day-10.csv", "_day.csv", "more/day-3.csv"):
        memory.pipe(f"/d/{name}", b"1")
    assert find_files("memory://d/day-?.csv") == ["memory://d/day-1.csv", "memory://d/day-2.csv"]
    assert len(find_files("memory://d/**/*.csv")) == 4
    assert find_files("memory://d/mor*", (".csv",)) == ["memory://d/more/day-3.csv"]


def test_a_folder_and_a_glob_on_a_web_server(file_server):
    file_server.files |= {"d/b.csv": b"1", "d/a.csv": b"1", "d/_c.csv": b"1", "d/x.txt": b"1"}
    expected = [f"{file_server.url}/d/a.csv", f"{file_server.url}/d/b.csv"]
    assert find_files(f"{file_server.url}/d/", (".csv",)) == expected
    assert find_files(f"{file_server.url}/d/*.csv") == expected


def test_a_cache_in_front_of_a_url(memory):
    memory.pipe("/d/a.csv", b"text")
    (found,) = find_files("simplecache::memory://d/*.csv")
    assert found == "simplecache::memory://d/a.csv"
    assert files.open_stream(found).read() == b"text"


def test_files_inside_a_remote_archive(memory):
    with memory.open("/d/x.zip", "wb") as target, zipfile.ZipFile(target, "w") as archive:
        archive.writestr("a.csv", "text")
        archive.writestr("b.txt", "other")
    for url in ("zip://*.csv::memory://d/x.zip", "zip://::memory://d/x.zip"):
        (found,) = find_files(url, (".csv",))
        assert found == "zip://a.csv::memory://d/x.zip"
    assert files.open_stream(found).read() == b"text"


def test_the_root_of_a_file_system(memory):
    memory.pipe("/a.csv", b"text")
    (found,) = find_files("memory://", (".csv",))
    assert files.open_stream(found).read() == b"text"


def test_a_file_url_is_a_local_path(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"1")
    assert find_files(f"file://{tmp_path}/*.csv") == [str(tmp_path / "a.csv")]


def test_urls_and_local_paths_may_be_mixed(memory, tmp_path):
    memory.pipe("/a", b"1")
    (tmp_path / "b").write_bytes(b"1")
    assert find_files(["memory://a", str(tmp_path / "b")]) == ["memory://a", str(tmp_path / "b")]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("memory://d/nothing.csv", "memory://d/nothing.csv cannot be read: there is no such file"),
        ("memory://d/*.xyz", "no file matches 'memory://d/\\*.xyz'"),
        ("memory://d/empty.csv", r"memory://d/empty.csv is empty \(0 bytes\)"),
        ("memory://d", "directory 'memory://d' holds no files .parquet"),
        ("htp://h/a.csv", "unknown protocol 'htp'; did you mean 'http'"),
        ("nosuchcache::memory://d", "unknown protocol 'nosuchcache'"),
        ("s3:/bucket/a.csv", "a URL in a Path loses a slash"),
    ],
)
def test_urls_that_lead_nowhere(memory, path, message):
    memory.pipe("/d/empty.csv", b"")
    with pytest.raises(DataError, match=message):
        find_files(path, (".parquet",))


def test_an_empty_file_on_a_web_server(file_server):
    file_server.files["a.csv"] = b""
    with pytest.raises(DataError, match=r"a.csv is empty \(0 bytes\)"):
        find_files(f"{file_server.url}/a.csv")


@pytest.mark.parametrize("packed", [".gz", ".zst"])
def test_a_packed_file_without_content_is_empty(tmp_path, packed):
    full, empty = tmp_path / f"a.csv{packed}", tmp_path / f"b.csv{packed}"
    full.write_bytes(PACKED[packed])
    nothing = {".gz": gzip.compress(b""), ".zst": pa.compress(b"", codec="zstd", asbytes=True)}
    empty.write_bytes(nothing[packed])
    with pytest.raises(DataError, match=r"is empty \(0 bytes\)"):
        find_files(str(tmp_path), ("",))
    with pytest.warns(UserWarning, match="is empty, and left out"):
        assert find_files(str(tmp_path), ("",), skip_empty=True) == [str(full)]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingDependencyError, match="pip install s3fs"):
        find_files("s3://bucket/a.csv")


def test_a_range_that_comes_with_another_length_is_refused(memory):
    memory.pipe("/a", b"12345")
    with pytest.raises(DataError, match="5 bytes came where 7 were asked for"):
        files.read_bytes("memory://a", 0, 7)


def test_a_file_without_a_size_is_refused(memory, monkeypatch):
    memory.pipe("/a", b"12345")
    monkeypatch.setattr(type(memory), "info", lambda *_: {"name": "/a", "size": None})
    with pytest.raises(DataError, match="does not report the size"):
        files.size_of("memory://a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://me:pass@h/a.csv failed", "http://...@h/a.csv failed"),
        ("http://me:p@ss@h/a.csv", "http://...@h/a.csv"),
        ("url='https://h/a?key=abc&x=1'", "url='https://h/a?...'"),
        ("sftp://token@h/a", "sftp://...@h/a"),
        ("s3://bucket/day-?.csv", "s3://bucket/day-?.csv"),
        ("mail me@home.org", "mail me@home.org"),
    ],
)
def test_credentials_are_not_shown(text, expected):
    assert urls.shown(text) == expected


def test_an_error_does_not_chain_to_one_with_credentials(file_server):
    with pytest.raises(DataError) as caught:
        files.size_of(f"{file_server.url}/a.csv?signature=secret")
    assert "404" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_large_compressed_file_is_warned_of(place, monkeypatch):
    small, large = place("a.csv.gz", PACKED[".gz"]), place("b.csv.zst", PACKED[".zst"] + bytes(999))
    plain = place("c.csv", bytes(9999))
    monkeypatch.setattr(files, "_LARGE", len(PACKED[".gz"]) + len(PACKED[".zst"]))
    (warning,) = files.unsplittable([small, large, plain])
    assert warning.startswith(f"{large} has ")
    assert "cannot be split" in warning
    assert "Parquet" in warning
