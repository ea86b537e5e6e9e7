"""Messages between the driver and its process on a host, over one ssh connection.

  host -> driver    a line with a Hello; then Listening, Reached, Pong, AgentExited
  driver -> host    Listen, Unlisten, Reach, Ping, Beat, StartAgent

Each message is preceded by its length, as in `child_process.write_message`.
"""

import msgspec

from flambeau.clusters.agent_process import AgentOrder

#: Prefix of the line with the Hello, which comes after any output of the shell's startup files.
MARK = b"flambeau-host "
#: A process on a host that receives nothing for this long exits, and ends its agents.
SILENCE_SECONDS = 120.0
BEAT_SECONDS = 15.0


class Hello(msgspec.Struct, frozen=True):
    """The versions that a host has. Later versions may add fields, but must keep these.

    `python` is a version such as 3.11; `client` and `server` are the addresses of the ssh
    connection as the host sees them.
    """

    flambeau: str
    python: str
    torch: str | None
    client: str
    server: str


class _Message(msgspec.Struct, frozen=True, tag=True):
    """The base of messages that follow the hello."""


class Listen(_Message, frozen=True):
    """Request to accept connections; `driver` is the driver's address, None if not reachable."""

    driver: str | None


class Listening(_Message, frozen=True):
    """Reply to `Listen`: the address and port at which other hosts reach this one."""

    host: str
    port: int


class Unlisten(_Message, frozen=True):
    """Request to stop accepting connections."""


class Reach(_Message, frozen=True):
    """Request to connect to each of these pairs of host and port, each within `seconds`."""

    places: list[tuple[str, int]]
    seconds: float


class Reached(_Message, frozen=True):
    """Reply to `Reach`, in its order: why each connection failed, None if it succeeded."""

    reasons: list[str | None]


class Beat(_Message, frozen=True):
    """Heartbeat of the driver, without a reply."""


class Ping(_Message, frozen=True):
    """Request for a `Pong`, to check that the host replies."""


class Pong(_Message, frozen=True):
    """Reply to `Ping`."""


class StartAgent(_Message, frozen=True):
    """Request to start an agent, with `environment` added to its environment variables.

    If an agent of the same number still runs, it is ended first. `start` is unique among all
    starts.
    """

    start: int
    order: AgentOrder
    environment: dict[str, str]


class AgentExited(_Message, frozen=True):
    """Report that an agent has exited; `errors` is the end of its standard error."""

    start: int
    code: int
    errors: str


ToHost = Listen | Unlisten | Reach | Ping | Beat | StartAgent
FromHost = Listening | Reached | Pong | AgentExited
