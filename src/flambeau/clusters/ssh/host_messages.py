"""Messages between the driver and its process on a host, over one ssh connection.

  host -> driver    a line with a Hello; then Listening, Reached, Pong, AgentExited
  driver -> host    Listen, Unlisten, Reach, Ping, Beat, StartAgent

Before each message comes its length, as in `child_process.write_message`.
"""

import msgspec

from flambeau.clusters.agent_process import AgentOrder

#: Begins the line with the Hello, after whatever startup files of the shell have written.
MARK = b"flambeau-host "
#: A process on a host that hears nothing for so long ends, with its agents.
SILENCE_SECONDS = 120.0
BEAT_SECONDS = 15.0


class Hello(msgspec.Struct, frozen=True):
    """What a host has. Later versions may add fields, but must keep these.

    `python` is its minor version; `client` and `server` are the addresses of the ssh connection as
    the host sees them.
    """

    flambeau: str
    python: str
    torch: str | None
    client: str
    server: str


class _Message(msgspec.Struct, frozen=True, tag=True):
    """The base of messages that follow the hello."""


class Listen(_Message, frozen=True):
    """Request to accept connections; `driver` is the address of the driver, if that is reached."""

    driver: str | None


class Listening(_Message, frozen=True):
    """Reply to `Listen`: the address at which other hosts reach this one, and a port there."""

    host: str
    port: int


class Unlisten(_Message, frozen=True):
    """Request to accept no more connections."""


class Reach(_Message, frozen=True):
    """Request to connect to each of these pairs of host and port, within so many seconds."""

    places: list[tuple[str, int]]
    seconds: float


class Reached(_Message, frozen=True):
    """Reply to `Reach`: why a connection failed, or nothing, in the order of the request."""

    reasons: list[str | None]


class Beat(_Message, frozen=True):
    """Sign of life of the driver, without a reply."""


class Ping(_Message, frozen=True):
    """Question whether the host is there."""


class Pong(_Message, frozen=True):
    """Reply to `Ping`."""


class StartAgent(_Message, frozen=True):
    """Request to start an agent, in an `environment` with these variables more.

    One of the same number that is still there is ended first. `start` is a number that no other
    start has.
    """

    start: int
    order: AgentOrder
    environment: dict[str, str]


class AgentExited(_Message, frozen=True):
    """Message that an agent has ended; `errors` is the end of what it has written."""

    start: int
    code: int
    errors: str


ToHost = Listen | Unlisten | Reach | Ping | Beat | StartAgent
FromHost = Listening | Reached | Pong | AgentExited
