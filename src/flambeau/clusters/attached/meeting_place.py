"""Where the processes of a launcher find rank 0: a file, or an address that all of them have.

Rank 0 listens, and writes its address to a file that the others look for (in a shared folder). The
file is named after the job and the call, and only its owner can read it. The address in a file of
an earlier job of the same name gives no reply, so the others look again until rank 0 has replied.
"""

import contextlib
import hashlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec

from flambeau.clusters.attached.launchers import Identity
from flambeau.clusters.attached.meeting_messages import CODEC, MAX_BYTES, Said
from flambeau.config import Attached
from flambeau.errors import ConfigError, UntrustedError
from flambeau.messaging import Codec, Server, new_secret
from flambeau.messaging.frames import Message

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore

#: The secret of the job, at least 16 characters; it must be the same in all processes.
SECRET = "FLAMBEAU_SECRET"
#: The folder of the file with the address of rank 0.
MEETING_DIR = "FLAMBEAU_MEETING_DIR"
DEFAULT_FOLDER = ".flambeau"


class _Written(msgspec.Struct, frozen=True):
    """The content of the file."""

    address: str
    secret: str | None


@final
class MeetingPlace:
    """Where the processes of one call meet: a file, or an address that all of them have."""

    def __init__(self, settings: Attached, identity: Identity, call: int | str) -> None:
        """Choose how to meet; `call`, a number or a name, distinguishes the meetings of a job."""
        folder = settings.meeting_dir or os.environ.get(MEETING_DIR) or DEFAULT_FOLDER
        self.path = Path(folder) / f"{identity.job}-{call}.json"
        self._name = f"{identity.job}-{call}"
        self._given = _secret_of(self._name)
        self._port = _master_port()
        #: torchrun's store at MASTER_PORT can publish an address, but must not hold a secret.
        self._in_store = self._given is not None and _has_store()

    @property
    def needs_file(self) -> bool:
        """Return whether processes meet through a file."""
        return self._given is None or (self._port is None and not self._in_store)

    def open(self, host: str) -> Server[Said]:
        """Listen, as rank 0, and publish the address."""
        return self.listen(host, CODEC, MAX_BYTES)

    def listen(self, host: str, codec: Codec[Message], max_bytes: int) -> Server[Message]:
        """Listen for messages of any protocol, as rank 0, and publish the address."""
        secret = self._given or new_secret()
        port = 0 if self.needs_file or self._port is None else self._port
        server = Server(codec, secret, host, port, max_bytes=max_bytes)
        if self._in_store:
            _torchrun_store().set(self._name, server.address)
        elif self.needs_file:
            shown = None if self._given else secret.hex()
            try:
                self._write(_Written(server.address, shown))
            except OSError as error:
                server.close()
                raise ConfigError(f"{self._what_to_set()} ({error})") from None
        return server

    def _write(self, written: _Written) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.path.with_suffix(f".{os.getpid()}-{socket.gethostname()}")
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(written))
        temporary.replace(self.path)

    def find(self) -> tuple[str, bytes] | None:
        """Return the address that rank 0 has published, and the secret; None if there is none."""
        if self._in_store:
            assert self._given is not None
            store = _torchrun_store()
            there = store.check([self._name])
            return (store.get(self._name).decode(), self._given) if there else None
        if not self.needs_file:
            assert self._given is not None
            return f"tcp://{os.environ['MASTER_ADDR']}:{self._port}", self._given
        try:
            with self.path.open("rb") as file:
                owner = os.fstat(file.fileno()).st_uid
                data = file.read()
        except OSError:
            return None
        if owner != os.getuid():
            raise UntrustedError(
                f"{self.path} belongs to another user (uid {owner}): remove it, or set "
                f"{MEETING_DIR} to a folder of your own"
            )
        try:
            written = msgspec.json.decode(data, type=_Written)
            secret = bytes.fromhex(written.secret) if written.secret else self._given
        except (msgspec.DecodeError, ValueError):
            return None  # written by another version; rank 0 replaces it
        return None if secret is None else (written.address, secret)

    def remove(self) -> None:
        """Remove the file, and its folder if that is empty then."""
        if self.needs_file:
            self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.path.parent.rmdir()

    def _what_to_set(self) -> str:
        return (
            f"processes of a job find each other through a file in {self.path.parent.resolve()}, "
            f"which all hosts must see and rank 0 can write: set meeting_dir= or {MEETING_DIR} to "
            f"another folder, or {SECRET}, MASTER_ADDR and MASTER_PORT in all processes"
        )

    def not_found(self, seconds: float) -> ConfigError:
        """Return the error for a process that got no reply from rank 0."""
        if self.needs_file and not self.path.exists():
            return ConfigError(f"rank 0 did not come within {seconds:g} s; {self._what_to_set()}")
        return ConfigError(
            f"rank 0 did not answer within {seconds:g} s: it has not reached this call, or host= "
            f"(or MASTER_ADDR) is not an address that leads to it from {socket.gethostname()}"
        )


def _secret_of(call: str) -> bytes | None:
    """Return the secret of one call, derived from the one in the environment, if that is set."""
    given = os.environ.get(SECRET)
    if not given:
        return None
    if len(given) < 16:
        raise ConfigError(f"{SECRET} is too short to be a secret: give at least 16 characters")
    size = len(new_secret())
    return hashlib.blake2b(f"{given} {call}".encode(), digest_size=size).digest()


def _master_port() -> int | None:
    """Return MASTER_PORT for rank 0 to listen on, unless the launcher uses that port itself."""
    port = os.environ.get("MASTER_PORT")
    if _has_store() or port is None or "MASTER_ADDR" not in os.environ:
        return None
    if not port.isdecimal():
        raise ConfigError(f"MASTER_PORT={port!r} is not a number")
    return int(port)


def _has_store() -> bool:
    """Return whether torchrun, or `flambeau run`, runs a store at MASTER_PORT."""
    return "TORCHELASTIC_RUN_ID" in os.environ or "TORCHELASTIC_USE_AGENT_STORE" in os.environ


def _torchrun_store() -> "TCPStore":
    from torch._C._distributed_c10d import TCPStore

    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
