"""A TCP proxy that loses, repeats, delays and cuts whole ZMTP messages, by a seed.

It understands ZMTP 3.1 with the PLAIN mechanism: a greeting of 64 bytes, then frames. What is not
data (greeting, commands) passes untouched, so that handshakes always work.
"""

import asyncio
import random
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Self

GREETING_BYTES = 64
MORE, LONG, COMMAND = 1, 2, 4


@dataclass(frozen=True)
class _Faults:
    """Probabilities per message, and the range of its delay in seconds."""

    drop: float
    duplicate: float
    delay: tuple[float, float]
    cut: float


class ZmtpProxy:
    """Stands at `address` for the server at `target`; a context manager.

    `counts` says what was done to messages: passed, dropped, duplicated, cut; and how many
    connections there were. Faults depend on the seed, the connection's number, its direction and
    the message's number in it. Messages of one direction keep their order.
    """

    def __init__(
        self,
        target: str,
        seed: int,
        drop: float = 0.0,
        duplicate: float = 0.0,
        delay: tuple[float, float] = (0.0, 0.0),
        cut: float = 0.0,
    ) -> None:
        host, port = target.removeprefix("tcp://").rsplit(":", 1)
        self._target = (host, int(port))
        self._seed, self._faults = seed, _Faults(drop, duplicate, delay, cut)
        self.counts: Counter[str] = Counter()
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zmtp-proxy")
        self._thread.start()
        assert self._started.wait(10), "the proxy did not start"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cut all connections and stop listening."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        connections: set[asyncio.Task[None]] = set()

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.counts["connections"] += 1
            number = self.counts["connections"]
            task = self._loop.create_task(self._relay(number, reader, writer))
            connections.add(task)
            task.add_done_callback(connections.discard)

        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        self.address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._started.set()
        await self._stop.wait()
        server.close()
        # Each sees the stop itself: cancelled while it closes, it would leave a socket open.
        await asyncio.gather(*connections)

    async def _relay(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass one connection on, until either side ends it or a fault cuts it."""
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            await _end(writer)
            return
        tasks = [
            self._loop.create_task(self._pass_on(f"{number} to the server", reader, back)),
            self._loop.create_task(self._pass_on(f"{number} to the client", there, writer)),
            self._loop.create_task(self._stop.wait()),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _end(writer)
        await _end(back)

    async def _pass_on(
        self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One direction of a connection; returns at its end."""
        chance = random.Random(f"{self._seed} {way}")
        try:
            await _pass_greeting(reader, writer)
            while await self._pass_message(chance, reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def _pass_message(
        self, chance: random.Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Pass a command, or treat a message; whether the connection goes on."""
        frames = await _read_message(reader)
        if frames[0] & COMMAND:
            writer.write(frames)
            return True
        faults = self._faults
        # Every decision is drawn for every message, so that one kind does not shift another.
        dropped, twice, cut, middle = (chance.random() for _ in range(4))
        await asyncio.sleep(chance.uniform(*faults.delay))
        if cut < faults.cut:
            self.counts["cut"] += 1
            writer.write(frames[: int(middle * len(frames))])
            return False
        if dropped < faults.drop:
            self.counts["dropped"] += 1
            return True
        self.counts["duplicated" if twice < faults.duplicate else "passed"] += 1
        writer.write(frames * 2 if twice < faults.duplicate else frames)
        return True


async def _pass_greeting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Piece by piece: each side waits for a part of the other's before it goes on."""
    left = GREETING_BYTES
    while left:
        piece = await reader.read(left)
        if not piece:
            raise asyncio.IncompleteReadError(piece, left)
        writer.write(piece)
        left -= len(piece)


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    """The bytes of all frames of the next message, or of one command."""
    message = b""
    while True:
        flags = await reader.readexactly(1)
        length = await reader.readexactly(8 if flags[0] & LONG else 1)
        message += flags + length + await reader.readexactly(int.from_bytes(length, "big"))
        if flags[0] & COMMAND or not flags[0] & MORE:
            return message


async def _end(writer: asyncio.StreamWriter) -> None:
    """Send what is written, as long as somebody reads it, and close."""
    writer.close()
    try:
        await asyncio.wait_for(writer.wait_closed(), timeout=1)
    except (ConnectionError, TimeoutError):
        writer.transport.abort()
        await asyncio.sleep(0)  # the turn in which the socket is closed
