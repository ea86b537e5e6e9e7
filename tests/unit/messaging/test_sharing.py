import gc
import os
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from flambeau.errors import ProtocolError
from flambeau.messaging import Client, Codec, Server, new_secret, sharing
from flambeau.messaging.frames import is_shared
from flambeau.messaging.memory_files import MemoryFile, can_share, create
from flambeau.messaging.sharing import LEAST_BYTES, PLACE_BYTES, PLACES, SharedMemory

pytestmark = pytest.mark.skipif(not can_share(), reason="no shared memory on this platform")

SECRET = new_secret()
MANY = LEAST_BYTES // 8 + 5


class Note(msgspec.Struct, tag=True):
    number: int


CODEC: Codec[Note] = Codec(Note)


def numbers(start: int, count: int = MANY) -> np.ndarray:
    return np.arange(start, start + count, dtype=np.int64)


def frames(*arrays: np.ndarray) -> list[memoryview]:
    return [memoryview(b"header"), *map(memoryview, arrays)]


@pytest.fixture
def sides() -> Iterator[tuple[SharedMemory, SharedMemory]]:
    client = sharing.offer()
    assert client is not None
    server = sharing.taken([sharing.offered(client.file)])
    assert server is not None
    yield client, server
    client.file.close()


def restored(memory: SharedMemory, travelling: list[memoryview]) -> list[np.ndarray]:
    found = memory.get(travelling)
    assert found is not None
    assert bytes(found[0]) == b"header"
    return [np.frombuffer(each, np.int64) for each in found[1:]]


@pytest.mark.parametrize("to_server", [True, False])
def test_large_buffers_stay_in_memory_and_small_ones_travel(sides, to_server):
    sender, receiver = sides if to_server else reversed(sides)
    given = [numbers(0), numbers(7, 3), numbers(100), numbers(9, 0)]
    travelling = sender.put(frames(*given))
    assert sum(each.nbytes for each in travelling) < 200
    for one, other in zip(restored(receiver, travelling), given, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_place_is_free_when_everything_of_its_message_is_forgotten(sides):
    client, server = sides
    kept = restored(server, client.put(frames(numbers(0), numbers(500))))
    part = kept[1][10:20]
    del kept
    for round_number in range(3 * PLACES):
        (found,) = restored(server, client.put(frames(numbers(round_number))))
        np.testing.assert_array_equal(found, numbers(round_number))
        del found
    np.testing.assert_array_equal(part, numbers(510, 10))
    part[:] = -1  # its own
    assert client._my_states.astype(bool).sum() == 1
    del part
    gc.collect()
    assert not client._my_states.any()


def test_a_fork_that_forgets_buffers_frees_nothing(sides):
    client, server = sides
    kept = restored(server, client.put(frames(numbers(5))))
    child = os.fork()
    if child == 0:
        del kept
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert client._my_states.any()
    np.testing.assert_array_equal(kept[0], numbers(5))


def test_without_a_free_place_buffers_travel(sides):
    client, server = sides
    kept = [restored(server, client.put(frames(numbers(each)))) for each in range(PLACES)]
    assert client.put(frames(numbers(0))) == frames(numbers(0))
    kept.pop()
    assert is_shared(client.put(frames(numbers(0))))


def test_what_is_small_or_too_large_travels(sides):
    client, _ = sides
    for count in (0, LEAST_BYTES // 8 - 1, PLACE_BYTES // 8 + 1):
        assert client.put(frames(numbers(0, count))) == frames(numbers(0, count))
    assert is_shared(client.put(frames(numbers(0, PLACE_BYTES // 8))))


def test_what_is_made_in_a_place_but_not_sent_leaves_it_free(sides):
    client, server = sides
    for _ in range(3 * PLACES):
        room = server.room([LEAST_BYTES])
        assert room is not None
        room.array(0, np.int64, (LEAST_BYTES // 8,))[:] = 1
        del room
        travelling = server.put(frames(numbers(3)))
        assert is_shared(travelling)
        server.take_back(travelling)
    assert not server._my_states.any()
    assert client.get(travelling) is None


def test_a_message_that_comes_twice_is_found_once(sides):
    client, server = sides
    travelling = client.put(frames(numbers(1)))
    restored(server, travelling)
    gc.collect()
    assert server.get(travelling) is None
    other = client.put(frames(numbers(2)))  # in the same place
    assert server.get(travelling) is None
    np.testing.assert_array_equal(restored(server, other)[0], numbers(2))


def spoilt(travelling: list[memoryview], **changes: object) -> list[memoryview]:
    where = sharing._where.decode(travelling[0][4:])
    changed = msgspec.structs.replace(where, **changes)
    head = bytes(travelling[0][:4]) + msgspec.msgpack.encode(changed)
    return [memoryview(head), *travelling[1:]]


@pytest.mark.parametrize(
    "changes",
    [
        {"place": PLACES},
        {"place": -1},
        {"spans": [(0, PLACE_BYTES + 1)]},
        {"spans": [(-8, 8)]},
        {"spans": [(64, 64)]},
        {"spans": [None]},
    ],
)
def test_places_that_cannot_be_are_refused(sides, changes):
    client, server = sides
    with pytest.raises(ProtocolError):
        server.get(spoilt(client.put(frames(numbers(0))), **changes))
    gc.collect()


def test_a_malformed_word_is_refused(sides):
    client, server = sides
    travelling = client.put(frames(numbers(0)))
    with pytest.raises(ProtocolError, match="shared memory"):
        server.get([memoryview(bytes(travelling[0][:4]) + b"\xc1"), *travelling[1:]])
    with pytest.raises(ProtocolError, match="shared memory"):
        sharing.taken([memoryview(b"FLO\x02\xc1")])


def test_only_the_file_that_was_made_is_opened(tmp_path):
    file = create(4096)
    with pytest.raises(ValueError, match="another file"):
        msgspec.structs.replace(file, token=file.token + 1).open()
    with pytest.raises(ValueError, match="another file"):
        msgspec.structs.replace(file, length=8192).open()
    with pytest.raises(ValueError, match="bytes of shared memory"):
        SharedMemory(file, is_client=False)
    assert sharing.taken([sharing.offered(file)]) is None
    file.close()
    assert not file.is_there
    with pytest.raises(OSError):
        file.open()
    with open(tmp_path / "other", "w+b") as other:
        other.write(bytes(8192))
        with pytest.raises((OSError, ValueError)):
            MemoryFile(os.getpid(), other.fileno(), 0, 8184).open()


def test_nobody_can_cut_the_memory():
    file = create(4096)
    with pytest.raises(OSError):
        os.ftruncate(file.descriptor, 0)
    file.close()


@pytest.mark.parametrize("server_shares", [True, False])
def test_a_client_and_a_server_agree(server_shares):
    server = Server(CODEC, SECRET, "127.0.0.1", max_bytes=1 << 20, share=server_shares)
    client = Client(CODEC, SECRET, server.address, max_bytes=1 << 20, share=True)
    refused = []
    for number in range(2 * PLACES):
        assert client.send(Note(number), [numbers(number)])
        envelope = None
        while envelope is None:
            envelope = server.receive(5.0)
            refused += server.refused.elements()
        np.testing.assert_array_equal(np.frombuffer(envelope.buffers[0], np.int64), numbers(number))
        assert server.send(envelope.peer, Note(-number), [numbers(-number)])
        answer, (buffer,) = client.receive(5.0)
        np.testing.assert_array_equal(np.frombuffer(buffer, np.int64), numbers(-number))
        assert answer == Note(-number)
    assert (client._shared is not None) is server_shares
    assert bool(refused) is not server_shares
    client.close()
    server.close()


def test_an_answer_to_nobody_takes_no_place(sides):
    _, memory = sides
    server = Server(CODEC, SECRET, "127.0.0.1", max_bytes=2**24)
    server._shared[b"gone"] = memory
    assert not server.send(b"gone", Note(1), [numbers(0)])
    assert not memory._my_states.any()
    server.close()


def test_memory_of_clients_that_left_is_given_back():
    server = Server(CODEC, SECRET, "127.0.0.1", share=True)
    for _ in range(3):
        client = Client(CODEC, SECRET, server.address, share=True)
        client.send(Note(1))
        assert server.receive(5.0) is not None
        assert len(server._shared) == 1
        client.close()
    server.close()


def test_a_broken_offer_is_refused_and_the_rest_goes_on():
    server = Server(CODEC, SECRET, "127.0.0.1", share=True)
    client = Client(CODEC, SECRET, server.address)
    client.socket.send(b"FLO\x02\xc1")
    client.send(Note(3))
    envelope = server.receive(5.0)
    assert envelope is not None
    assert envelope.message == Note(3)
    assert server.refused.total() == 1
    client.close()
    server.close()
