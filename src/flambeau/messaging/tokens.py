"""Single-use tokens that prove knowledge of the job's secret."""

import hashlib
import hmac
import secrets
import time

VALID_SECONDS = 300


def new_secret() -> bytes:
    """Return a random secret for one job."""
    return secrets.token_bytes(32)


def new_token(secret: bytes) -> tuple[bytes, bytes]:
    """Return a user name (time and a random number) and its password, valid once."""
    user = f"{time.time_ns()}-{secrets.token_hex(16)}".encode()
    return user, _sign(secret, user)


class TokenVerifier:
    """Verifier that accepts each valid token once, within `VALID_SECONDS` of its creation."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._used: dict[bytes, float] = {}

    def accept(self, user: bytes, password: bytes) -> bool:
        """Return whether the token is genuine, recent and not used before."""
        if not hmac.compare_digest(_sign(self._secret, user), password):
            return False
        now = time.time()
        made = int(user.split(b"-", 1)[0]) / 1e9
        if abs(now - made) > VALID_SECONDS or user in self._used:
            return False
        self._forget_before(now - 2 * VALID_SECONDS)
        self._used[user] = now
        return True

    def _forget_before(self, sync_point: float) -> None:
        expired = [user for user, used in self._used.items() if used < sync_point]
        for user in expired:
            del self._used[user]


def _sign(secret: bytes, user: bytes) -> bytes:
    return hmac.new(secret, b"flambeau " + user, hashlib.sha256).hexdigest().encode()
