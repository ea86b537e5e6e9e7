import os
from collections.abc import Iterator

import pytest

from flambeau.clusters.role_process import MAX_LINE, OutputLines


class Pipe:
    """A stream that the test writes to."""

    def __init__(self) -> None:
        read_end, self._write_end = os.pipe()
        self.stream = os.fdopen(read_end, "rb")
        self.lines = OutputLines("stdout", self.stream)
        self.open = True

    def write(self, data: bytes) -> None:
        os.write(self._write_end, data)

    def end(self) -> None:
        if self.open:
            os.close(self._write_end)
            self.open = False


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.end()
    pipe.stream.close()


def test_only_complete_lines_are_read(pipe: Pipe) -> None:
    pipe.write(b"one\ntwo\nthr")
    assert pipe.lines.read() == ["one", "two"]
    pipe.write(b"ee\n")
    assert pipe.lines.read() == ["three"]


def test_reading_does_not_wait(pipe: Pipe) -> None:
    assert pipe.lines.read() == []
    assert not pipe.lines.ended


def test_a_last_line_without_an_end_comes_when_the_stream_ends(pipe: Pipe) -> None:
    pipe.write(b"bye")
    pipe.end()
    assert [pipe.lines.read(), pipe.lines.read()] == [[], ["bye"]]
    assert pipe.lines.ended


def test_nothing_comes_after_a_complete_last_line(pipe: Pipe) -> None:
    pipe.write(b"bye\n")
    pipe.end()
    assert [pipe.lines.read(), pipe.lines.read()] == [["bye"], []]


def test_a_line_without_an_end_does_not_grow_forever(pipe: Pipe) -> None:
    pipe.write(b"x" * 60_000)
    assert pipe.lines.read() == []
    pipe.write(b"x" * 10_000)
    (line,) = pipe.lines.read()
    assert len(line) == 70_000 > MAX_LINE


def test_bytes_that_are_no_text_are_replaced(pipe: Pipe) -> None:
    pipe.write(b"\xff\n")
    assert pipe.lines.read() == ["\N{REPLACEMENT CHARACTER}"]
