"""The live page's server: who may read it, and what it sends."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_run import append, make_run, progress, started

from flambeau.checkpoint import RunDirectory
from flambeau.reports.live_page import LivePage


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return make_run(tmp_path / "run", *started(), ("progress", 1003.0, progress(5)))


@pytest.fixture
def server(run: RunDirectory) -> Iterator[LivePage]:
    with LivePage([run.path]) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.05,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def test_only_the_token_opens_the_page(server: LivePage) -> None:
    with urllib.request.urlopen(server.url) as answer:
        assert b"<main>" in answer.read()
        assert answer.headers["Cache-Control"] == "no-store"
    for url in (
        server.url[:-1],
        server.url.partition("?")[0],
        server.url.replace("/?", "/events?")[:-1],
    ):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(url)


def test_it_listens_on_loopback_only(server: LivePage) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_news_are_sent_as_they_are_written(server: LivePage, run: RunDirectory) -> None:
    with urllib.request.urlopen(server.url.replace("/?", "/events?")) as stream:
        assert stream.readline() == b"event: page\n"
        assert "step 5" in json.loads(stream.readline().removeprefix(b"data: "))
        rest = [stream.readline() for _ in range(4)]
        assert rest[1:3] == [b"event: state\n", b'data: "the run has ended"\n']
        append(run, ("progress", 1004.0, progress(6)))
        assert stream.readline() == b"event: page\n"
        assert "step 6" in json.loads(stream.readline().removeprefix(b"data: "))


def test_the_run_is_not_changed(server: LivePage, run: RunDirectory) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    with urllib.request.urlopen(server.url) as answer:
        answer.read()
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before
