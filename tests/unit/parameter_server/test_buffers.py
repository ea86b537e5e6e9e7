"""Received bytes become arrays only if their length is right."""

import numpy as np
import pytest

from flambeau.errors import ProtocolError
from flambeau.parameter_server import buffers

FLOAT = np.dtype(np.float32)


def test_bytes_are_read_as_ids_and_rows() -> None:
    assert buffers.ids(np.array([-1, 2**62]).tobytes(), 2).tolist() == [-1, 2**62]
    given = np.arange(6, dtype=np.float32)
    assert buffers.rows(given.tobytes(), 3, 2, FLOAT).tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**60])
def test_another_length_is_refused(count: int) -> None:
    with pytest.raises(ProtocolError, match=f"a buffer of 16 bytes for {count} numbers of 8"):
        buffers.ids(bytes(16), count)


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(ProtocolError, match="24 bytes for 8 numbers of 4"):
        buffers.rows(bytes(24), 2, 4, FLOAT)


def test_nothing_is_no_rows() -> None:
    assert buffers.rows(b"", 0, 5, FLOAT).shape == (0, 5)


def test_writable_memory_is_not_copied() -> None:
    memory = bytearray(8)
    buffers.numbers(memoryview(memory), 2, FLOAT)[0] = 1.0
    assert memory[:4] == np.float32(1.0).tobytes()


def test_read_only_memory_is_copied_so_that_it_may_be_written() -> None:
    memory = bytes(8)
    buffers.numbers(memory, 2, FLOAT)[0] = 1.0
    assert memory == bytes(8)
