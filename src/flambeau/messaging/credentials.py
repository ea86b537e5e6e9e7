"""Credentials by which a peer proves that it belongs to the job.

They are single-use tokens, or keys that also encrypt.
"""

import hashlib
import hmac
from abc import ABC, abstractmethod
from typing import final

import zmq
from zmq.utils import z85

from flambeau.messaging.tokens import TokenVerifier, new_token
from flambeau.messaging.transport import Socket


class Credentials(ABC):
    """Credentials derived from the job's secret alone; nothing else needs to be distributed."""

    #: Reason to report about a peer without credentials.
    refusal: str

    @abstractmethod
    def guard(self, server: Socket) -> None:
        """Make the socket require credentials; call it before the socket binds."""

    @abstractmethod
    def show(self, client: Socket) -> None:
        """Make the socket show credentials; call it before the socket connects."""

    @abstractmethod
    def admit(self, mechanism: bytes, shown: list[bytes]) -> bool:
        """Return whether the credentials that a peer showed are valid."""


def credentials(secret: bytes, *, encrypt: bool) -> Credentials:
    """Return keys with `encrypt`, tokens without."""
    return Keys(secret) if encrypt else Tokens(secret)


@final
class Tokens(Credentials):
    """PLAIN: each connection shows a token that is valid once. The traffic is not encrypted."""

    refusal = "no valid token"

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._verifier = TokenVerifier(secret)

    def guard(self, server: Socket) -> None:
        """Require PLAIN."""
        server.plain_server = True

    def show(self, client: Socket) -> None:
        """Show a new token."""
        client.plain_username, client.plain_password = new_token(self._secret)

    def admit(self, mechanism: bytes, shown: list[bytes]) -> bool:
        """Return whether it is a token of this job that was not used before."""
        return mechanism == b"PLAIN" and len(shown) == 2 and self._verifier.accept(*shown)


@final
class Keys(Credentials):
    """CURVE: one key pair for servers and one for clients, both derived from the secret.

    Each connection is encrypted with its own keys, which are made in its handshake.
    """

    refusal = "not a key of this job"

    def __init__(self, secret: bytes) -> None:
        self._server_public, self._server_secret = _key_pair(secret, b"server")
        self._client_public, self._client_secret = _key_pair(secret, b"client")

    def guard(self, server: Socket) -> None:
        """Require CURVE."""
        server.curve_server = True
        server.curve_secretkey = self._server_secret

    def show(self, client: Socket) -> None:
        """Prove to a server of the job, and to no other, that this is a client of the job."""
        client.curve_serverkey = self._server_public
        client.curve_publickey = self._client_public
        client.curve_secretkey = self._client_secret

    def admit(self, mechanism: bytes, shown: list[bytes]) -> bool:
        """Return whether it is the key of the job's clients; the handshake proves its ownership."""
        return mechanism == b"CURVE" and shown == [z85.decode(self._client_public)]


def _key_pair(secret: bytes, side: bytes) -> tuple[bytes, bytes]:
    private = z85.encode(hmac.new(secret, b"flambeau curve " + side, hashlib.sha256).digest())
    return zmq.curve_public(private), private
