"""CSV files in other encodings than UTF-8, and bytes that are no text."""

import gzip
from pathlib import Path

import pytest

import flambeau as fb
from flambeau.data.sources.text.csv import CsvSource
from flambeau.errors import ConfigError, DataError
from flambeau.features.raw_data import open_rows

TITLES = [f"Café {n} – Œuvre €" for n in range(500)]
TEXT = "id,title\n" + "".join(f"{n},{title}\n" for n, title in enumerate(TITLES))


def titles(source: CsvSource) -> list[str]:
    return [
        value
        for shard in source.shards()
        for batch in source.read(shard, ["title"])
        for value in batch.column("title").to_pylist()
    ]


@pytest.mark.parametrize("encoding", ["cp1252", "windows-1252", "utf-8", "UTF8", "utf-8-sig"])
@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
def test_every_part_of_a_file_is_read_in_its_encoding(
    encoding: str, on_bad_row: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(TEXT.encode(encoding))
    source = CsvSource(str(path), encoding=encoding, on_bad_row=on_bad_row, shard_bytes=1000)
    assert len(source.shards()) > 5
    assert titles(source) == TITLES


def test_rows_in_the_middle_of_a_shard_and_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(TEXT.encode("cp1252")))
    source = CsvSource(str(path), encoding="cp1252")
    (shard,) = source.shards()
    rows = [row for batch in source.read(shard, ["title"], 100, 103) for row in batch.to_pylist()]
    assert [row["title"] for row in rows] == TITLES[100:103]


def test_names_and_quoted_values_in_latin_1(tmp_path: Path) -> None:
    (tmp_path / "u.item").write_bytes('1|"Les Misérables"|é\n2|Fünf|\n'.encode("latin-1"))
    names = ["item", "größe", "x"]
    data = fb.files(
        tmp_path / "u.item", format="csv", delimiter="|", names=names, encoding="latin-1"
    )
    source = open_rows(data)
    rows = [batch.to_pylist() for shard in source.shards() for batch in source.read(shard, names)]
    assert rows == [
        [
            {"item": 1, "größe": "Les Misérables", "x": "é"},
            {"item": 2, "größe": "Fünf", "x": ""},
        ]
    ]
    (tmp_path / "b.csv").write_bytes("größe\n1\n".encode("latin-1"))
    assert CsvSource(str(tmp_path / "b.csv"), encoding="latin-1").schema.names == ["größe"]
    with pytest.raises(DataError, match=r"the line of names: .*utf-8.*give its encoding"):
        CsvSource(str(tmp_path / "b.csv"))


@pytest.mark.parametrize("names", [None, ["id", "title"]])
def test_a_line_that_is_not_utf_8_is_named_with_what_to_do(
    names: list[str] | None, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    header = [] if names else ["id,title"]
    lines = [*header, "1,plain", "2,Café"]
    path.write_bytes("".join(f"{line}\n" for line in lines).encode("latin-1"))
    source = CsvSource(str(path), names=names)
    with pytest.raises(DataError, match=f"line {len(lines)}: .*invalid UTF8.*encoding='latin-1'"):
        titles(source)
    assert [len(batch) for batch in source.read(source.shards()[0], ["id"])] == [2]


def test_bytes_that_an_encoding_does_not_have_are_an_error_or_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [f"{n},Caf\xe9 {n}\n".encode("latin-1") for n in range(100)]
    rows[50] = b"50,\x81\n"  # no character of cp1252
    path.write_bytes(b"id,title\n" + b"".join(rows))
    with pytest.raises(DataError, match=r"line 52: .*0x81.*give its encoding.*on_bad_row"):
        titles(CsvSource(str(path), encoding="cp1252"))
    skipping = CsvSource(str(path), encoding="cp1252", on_bad_row="skip")
    assert titles(skipping) == [f"Café {n}" for n in range(100) if n != 50]
    assert skipping.skipped_rows == 1
    utf8 = CsvSource(str(path), on_bad_row="skip", types={"id": "int64"})
    with pytest.raises(DataError, match="has no rows, only 100 bad rows"):
        utf8.shards()


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-32", "utf-7", "gbk", "shift_jis", "cp037", "iso2022_jp"]
)
def test_encodings_that_cannot_be_cut_at_line_ends_are_refused(
    encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    with pytest.raises(ConfigError, match=r"one byte for each character.*iconv -f"):
        CsvSource(str(path), encoding=encoding)


def test_unknown_encodings_and_files_in_utf_16(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    with pytest.raises(ConfigError, match="encoding='latin-one' is not known"):
        CsvSource(str(path), encoding="latin-one")
    path.write_bytes(TEXT.encode("utf-16"))
    for names in (None, ["id", "title"]):
        with pytest.raises(DataError, match=r"is UTF-16 by its first bytes.*iconv -f utf-16"):
            CsvSource(str(path), names=names, on_bad_row="skip")
