from types import SimpleNamespace

import pytest

from flambeau.messaging import tokens
from flambeau.messaging.tokens import VALID_SECONDS, TokenVerifier, new_secret, new_token


class Clock:
    """Stands in for the time module."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fake = SimpleNamespace(time=lambda: self.now, time_ns=lambda: int(self.now * 1e9))
        monkeypatch.setattr(tokens, "time", fake)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    clock.install(monkeypatch)
    return clock


def test_a_token_of_the_same_secret_is_accepted() -> None:
    secret = new_secret()
    assert TokenVerifier(secret).accept(*new_token(secret))


def test_a_token_is_good_for_one_use() -> None:
    secret = new_secret()
    verifier, token = TokenVerifier(secret), new_token(secret)
    assert [verifier.accept(*token), verifier.accept(*token)] == [True, False]


def test_a_token_of_another_secret_is_refused() -> None:
    assert not TokenVerifier(new_secret()).accept(*new_token(new_secret()))


def test_a_user_name_with_anothers_password_is_refused() -> None:
    secret = new_secret()
    (user, _), (_, password) = new_token(secret), new_token(secret)
    assert not TokenVerifier(secret).accept(user, password)


@pytest.mark.parametrize("drift", [VALID_SECONDS + 1, -VALID_SECONDS - 1])
def test_a_token_too_far_from_now_is_refused(clock: Clock, drift: float) -> None:
    secret = new_secret()
    token = new_token(secret)
    clock.now += drift
    assert not TokenVerifier(secret).accept(*token)


def test_a_token_from_a_clock_ahead_cannot_be_used_again_later(clock: Clock) -> None:
    secret = new_secret()
    verifier = TokenVerifier(secret)
    start = clock.now
    clock.now = start + VALID_SECONDS
    early = new_token(secret)
    clock.now = start
    assert verifier.accept(*early)
    clock.now = start + 2 * VALID_SECONDS
    assert verifier.accept(*new_token(secret))
    assert not verifier.accept(*early)


def test_expired_tokens_are_forgotten(clock: Clock) -> None:
    secret = new_secret()
    verifier = TokenVerifier(secret)
    for _ in range(3):
        assert verifier.accept(*new_token(secret))
        clock.now += 3 * VALID_SECONDS
    assert len(verifier._used) == 1


def test_nonsense_is_refused() -> None:
    assert not TokenVerifier(new_secret()).accept(b"", b"\xff")


def test_secrets_differ() -> None:
    assert new_secret() != new_secret()
