"""Numbers as they travel."""

import numpy as np
import pytest
import torch

from flambeau.errors import ProtocolError
from flambeau.parameter_server.compression import decode, encode

KINDS = ("none", "bf16", "fp16")


def sent(array: np.ndarray, kind: str) -> np.ndarray:
    """An array that was encoded and has arrived as bytes."""
    return decode(encode(array, kind).tobytes(), kind, array.dtype, array.size)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_in_full_arrive_as_they_are(dtype):
    array = np.random.default_rng(0).normal(size=100).astype(dtype)
    assert np.array_equal(sent(array, "none"), array)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("kind", "half"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_halves_are_the_nearest_there_are(kind, half, dtype):
    array = np.random.default_rng(0).normal(size=1000).astype(dtype)
    nearest = torch.from_numpy(array).to(half).to(torch.from_numpy(array).dtype).numpy()
    arrived = sent(array, kind)
    assert arrived.dtype == dtype
    assert np.array_equal(arrived, nearest)


@pytest.mark.parametrize(("kind", "size"), [("none", 4), ("bf16", 2), ("fp16", 2)])
def test_a_number_takes_as_many_bytes_as_its_kind(kind, size):
    assert encode(np.zeros(10, np.float32), kind).nbytes == 10 * size


def test_numbers_in_full_are_not_copied():
    array = np.zeros(3, np.float32)
    assert encode(array, "none") is array
    assert np.shares_memory(decode(array, "none", np.float32, 3), array)


def test_what_is_too_large_for_fp16_becomes_the_largest():
    array = np.float32([1e6, -1e6, 65_519, 65_504, 3])
    assert sent(array, "fp16").tolist() == [65_504, -65_504, 65_504, 65_504, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_a_number_stays_visible(kind):
    array = np.float32([np.nan, np.inf, -np.inf, 1])
    assert np.array_equal(sent(array, kind), array, equal_nan=True)


def test_an_overflow_beside_a_nan_still_saturates():
    assert sent(np.float32([np.nan, 1e9]), "fp16")[1] == 65_504


@pytest.mark.parametrize("kind", KINDS)
def test_what_arrives_may_be_written_to(kind):
    arrived = sent(np.ones(3, np.float32), kind)
    arrived *= 2
    assert arrived.tolist() == [2, 2, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_read_only_and_strided_arrays_can_be_sent(kind):
    read_only = np.frombuffer(np.float32([1, 2, 3, 4]).tobytes(), np.float32)
    assert sent(read_only[::2], kind).tolist() == [1, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_can_be_sent(kind):
    assert sent(np.zeros(0, np.float32), kind).size == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [-1, 3, 5])
def test_a_buffer_of_another_size_is_refused(kind, count):
    buffer = encode(np.zeros(4, np.float32), kind).tobytes()
    with pytest.raises(ProtocolError, match="bytes for"):
        decode(buffer, kind, np.float32, count)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ProtocolError, match="unknown compression 'zip'"):
        encode(np.zeros(1, np.float32), "zip")
    with pytest.raises(ProtocolError, match="unknown compression 'zip'"):
        decode(b"\0\0", "zip", np.float32, 1)
