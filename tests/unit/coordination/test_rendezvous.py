from collections.abc import Sequence
from typing import Any

import pytest

from flambeau.coordination import rendezvous
from flambeau.coordination.rendezvous import Operation, Rendezvous, StoreReply, StoreRequest


class Keys:
    """A rendezvous, and the replies that it has sent."""

    def __init__(self) -> None:
        self.replies: list[tuple[bytes, StoreReply, list[bytes]]] = []
        self.rendezvous = Rendezvous(self._reply)
        self._number = 0

    def _reply(self, peer: bytes, reply: StoreReply, values: Sequence[bytes]) -> None:
        self.replies.append((peer, reply, list(values)))

    def ask(
        self, operation: Operation, *keys: str, values: Sequence[bytes] = (), **fields: Any
    ) -> int:
        """Send a request, which has this number."""
        self._number += 1
        fields = {"generation": 0, "seconds": 60.0, **fields}
        request = StoreRequest(number=self._number, operation=operation, keys=list(keys), **fields)
        self.rendezvous.handle(b"peer", request, values)
        return self._number

    def answer(
        self, operation: Operation, *keys: str, values: Sequence[bytes] = (), **fields: Any
    ) -> tuple[int, list[bytes]]:
        """Send a request that is answered at once."""
        number = self.ask(operation, *keys, values=values, **fields)
        peer, reply, found = self.replies.pop()
        assert (peer, reply.number, reply.error) == (b"peer", number, "")
        return reply.count, found

    def refusal(self, operation: Operation, *keys: str, values: Sequence[bytes] = ()) -> str:
        number = self.ask(operation, *keys, values=values)
        _, reply, _ = self.replies.pop()
        assert reply.number == number
        assert reply.error
        return reply.error


@pytest.fixture
def keys() -> Keys:
    return Keys()


def test_values_that_are_there_are_given_at_once(keys: Keys) -> None:
    keys.answer("set", "a", "b", values=[b"1", b"2"])
    assert keys.answer("get", "b", "a") == (0, [b"2", b"1"])
    assert keys.answer("wait", "a") == (0, [])
    assert keys.answer("check", "a", "b") == (1, [])
    assert keys.answer("check", "a", "c") == (0, [])
    assert keys.answer("count") == (2, [])


def test_a_request_waits_until_all_of_its_keys_are_there(keys: Keys) -> None:
    get, wait = keys.ask("get", "a", "b"), keys.ask("wait", "b")
    keys.answer("set", "a", values=[b"1"])
    assert not keys.replies
    keys.ask("add", "b", amount=3)
    assert [(reply.number, values) for _, reply, values in keys.replies[1:]] == [
        (get, [b"1", b"3"]),
        (wait, []),
    ]


def test_a_request_whose_time_is_up_is_forgotten(keys: Keys) -> None:
    keys.ask("get", "a", seconds=0.0)
    keys.ask("get", "b")
    keys.answer("set", "a", values=[b"1"])
    assert not keys.replies


def test_numbers_are_added_and_bytes_appended(keys: Keys) -> None:
    assert [keys.answer("add", "n", amount=each)[0] for each in (2, -5)] == [2, -3]
    keys.answer("append", "t", values=[b"ab"])
    keys.answer("append", "t", values=[b"c"])
    assert keys.answer("get", "n", "t") == (0, [b"-3", b"abc"])
    assert "invalid literal" in keys.refusal("add", "t")


def test_a_key_is_exchanged_only_if_it_has_the_expected_value(keys: Keys) -> None:
    assert keys.answer("compare_set", "a", values=[b"x", b"1"]) == (0, [b"x"])
    assert keys.answer("check", "a")[0] == 0
    assert keys.answer("compare_set", "a", values=[b"", b"1"]) == (0, [b"1"])
    assert keys.answer("compare_set", "a", values=[b"", b"2"]) == (0, [b"1"])
    assert keys.answer("compare_set", "a", values=[b"1", b"2"]) == (0, [b"2"])


def test_a_deleted_key_is_gone(keys: Keys) -> None:
    keys.answer("set", "a", values=[b"1"])
    assert [keys.answer("delete", "a")[0] for _ in range(2)] == [1, 0]
    assert keys.answer("check", "a")[0] == 0


def test_keys_end_with_their_generation(keys: Keys) -> None:
    keys.answer("set", "a", values=[b"1"])
    keys.ask("get", "b")
    keys.rendezvous.begin(1)
    keys.ask("set", "b", values=[b"late"])  # of the generation before
    assert not keys.replies
    keys.answer("set", "b", values=[b"2"], generation=1)
    assert keys.answer("check", "a", generation=1)[0] == 0


def test_what_is_kept_is_limited(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "MAX_KEYS", 2)
    monkeypatch.setattr(rendezvous, "MAX_VALUE_BYTES", 10)
    monkeypatch.setattr(rendezvous, "MAX_BYTES", 15)
    assert "cannot take 11 bytes as 'a'" in keys.refusal("set", "a", values=[bytes(11)])
    keys.answer("set", "a", values=[bytes(10)])
    assert "cannot take" in keys.refusal("append", "a", values=[b"1"])
    assert "cannot take" in keys.refusal("set", "b", values=[bytes(4)])
    keys.answer("set", "b", values=[bytes(3)])
    assert "cannot take" in keys.refusal("set", "c", values=[b""])
    keys.answer("delete", "a")
    keys.answer("set", "c", values=[bytes(10)])


@pytest.mark.parametrize(
    ("operation", "names", "values"),
    [("set", ["a"], []), ("append", ["a"], []), ("compare_set", ["a"], [b""]), ("delete", [], [])],
)
def test_a_malformed_request_is_refused(
    keys: Keys, operation: Operation, names: list[str], values: list[bytes]
) -> None:
    assert keys.refusal(operation, *names, values=values).startswith(f"{operation} with ")
