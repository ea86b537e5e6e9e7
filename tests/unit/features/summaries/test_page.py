"""The page on a prepared folder: whole, escaped, and with a picture for each column."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flambeau as fb
import flambeau.features as ft
from flambeau.features.preparing.prepared import Prepared
from flambeau.reports.drawing import number

EVIL = "<script>alert('\"&')</script>"
QUIET: dict[str, Any] = {"cluster": fb.Local(1), "observe": {"progress": "none"}}
VOID = {"meta", "br", "link", "img"}


class Page(HTMLParser):
    """The elements, attributes and text of a page; wrong nesting is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def prepared(folder: Path, columns: dict[str, Any], **values: Any) -> Prepared:
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    steps = ft.Pipeline([ft.Categorify("city")])
    return steps.fit_transform(
        str(folder / "rows.parquet"), out=folder / "out", **{"report": True, **QUIET, **values}
    )


def rows(count: int = 200) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "city": pa.array([EVIL if k % 3 else None for k in range(count)]),
        EVIL: rng.normal(size=count),
        "empty": pa.nulls(count, pa.string()),
        "far": np.append(rng.lognormal(0, 3, count - 1), np.inf),
        "when": pa.array(np.arange(count), pa.timestamp("s")),
        "lists": pa.array([[1, 2]] * count),
        "pairs": pa.array([{"a": 1}] * count),
    }


def test_what_users_wrote_is_text_only(tmp_path: Path) -> None:
    prepared(tmp_path, rows())
    page = Page((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    assert "script" not in page.tags
    assert EVIL in page.words  # the column's name, as a title
    assert any(word.startswith("<script>") for word in page.words if word != EVIL)  # and a value


def test_it_needs_nothing_else(tmp_path: Path) -> None:
    prepared(tmp_path, rows())
    html = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    page = Page(html)
    assert {"link", "img", "iframe", "object"}.isdisjoint(page.tags)
    links = [value for name, value in page.attributes if name in ("src", "href", "action")]
    assert all(value and value.startswith("#") for value in links)
    assert not re.search(r"https?:|url\(|@import", html)
    anchors = {value for name, value in page.attributes if name == "id"}
    assert {value[1:] for value in links if value} <= anchors


def test_pictures_are_valid_and_there_is_one_for_each_column_with_values(tmp_path: Path) -> None:
    prepared(tmp_path, rows(), split=ft.by_ratio(valid=0.2, test=0.2))
    html = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    cards = re.findall(r'<article id="([^"]*)">(.*?)</article>', html, re.DOTALL)
    assert len(cards) == 7 + 1  # seven features, and the raw column behind one of them
    pictures = [re.search("<svg.*?</svg>", card, re.DOTALL) for _, card in cards]
    found = [each[0] for each in pictures if each is not None]
    assert len(found) == 6  # there is none for what is all missing, and for pairs
    for picture in found:
        for element in ElementTree.fromstring(picture).iter():
            for name in ("x", "y", "width", "height", "cx", "cy"):
                assert float(element.get(name, "0")) >= 0


def test_columns_with_warnings_come_first(tmp_path: Path) -> None:
    prepared(tmp_path, rows())
    html = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    warned = ['class="warn"' in card for card in html.split("<article")[1:7]]
    assert warned == sorted(warned, reverse=True)
    assert "no row to train on has a value" in html


def test_a_report_can_be_written_elsewhere_and_later(tmp_path: Path) -> None:
    found = prepared(tmp_path, rows(), report=tmp_path / "pages" / "one.html")
    assert not (tmp_path / "out" / "report.html").exists()
    assert found.report().read_bytes() == (tmp_path / "pages" / "one.html").read_bytes()


def test_two_hundred_columns_have_links_by_name(tmp_path: Path) -> None:
    columns = {f"c{k}": np.arange(20) * k for k in range(200)}
    prepared(tmp_path, {"city": ["x"] * 20, **columns})
    html = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert html.count("<article") == 202
    assert "All by name" in html


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (9999, "9,999"),
        (123_456, "123.5k"),
        (-2_500_000, "-2.5M"),
        (2**63 - 1, "9.223e+18"),
        (0.000123456, "0.0001235"),
        (True, "True"),
        ("inf", "inf"),
    ],
)
def test_numbers_are_short(value: Any, text: str) -> None:
    assert number(value) == text
