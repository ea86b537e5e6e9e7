"""What agents bring and carry; what else is said is in `protocol`.

agent -> coordinator     AgentJoined, AgentBeat, Spooled

With agents that do not see the driver's files:

coordinator -> agent     FilePart, FilesStored, WantFiles, KeepFiles
agent -> coordinator     FilePart, FilesSent
"""

from flambeau.coordination.roles import Message


class AgentJoined(Message, frozen=True):
    """An agent is there; `shares`: it sees the driver's run directory.

    Agents with the same `machine` can share memory, GPUs and `cores`, those that each may use.
    Every process or thread that has been agent number `agent` has an `incarnation` of its own.
    """

    agent: int
    host: str
    machine: str
    cores: list[int]
    shares: bool = True
    incarnation: str = ""


class AgentBeat(Message, frozen=True):
    """A sign of life of an agent, by a connection of its own."""

    agent: int
    incarnation: str


class FilePart(Message, frozen=True):
    """A piece of a file of the run, at `start`; the bytes are the message's buffer."""

    path: str
    start: int


class WantFiles(Message, frozen=True):
    """Send all files of this directory of the run."""

    directory: str


class FilesSent(Message, frozen=True):
    """They have been sent, or `stored` in the depot; or they are `too_large`, in bytes.

    Or they are `gone`, since newer ones have taken their place.
    """

    agent: int
    directory: str
    too_large: int = 0
    stored: list[str] = []
    gone: bool = False


class FilesStored(Message, frozen=True):
    """Files of the run wait in the depot."""

    names: list[str]


class KeepFiles(Message, frozen=True):
    """Other checkpoints than these may be removed."""

    checkpoints: list[str]


class Spooled(Message, frozen=True):
    """An agent's part of the job's data frames is in a file: rows of its batches, by frame.

    `nulls` has the rows without a value, by frame and column, of those columns that have any.
    """

    agent: int
    rows: dict[str, list[int]]
    size: int
    nulls: dict[str, dict[str, int]] = {}
