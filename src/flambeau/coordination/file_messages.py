"""Messages of agents about themselves and about files; all others are in `protocol`.

  agent -> coordinator     AgentJoined, AgentBeat, Spooled

With agents that cannot access the driver's files:

  coordinator -> agent     FilePart, FilesStored, WantFiles, KeepFiles
  agent -> coordinator     FilePart, FilesSent
"""

from flambeau.coordination.roles import Message


class AgentJoined(Message, frozen=True):
    """Message that an agent has started; `shares`: it can access the driver's run directory.

    Agents with the same `machine` share its memory and GPUs, and possibly `cores`, the CPU cores
    that the agent may use. Each process or thread that has been agent number `agent` has its own
    `incarnation`.
    """

    agent: int
    host: str
    machine: str
    cores: list[int]
    shares: bool = True
    incarnation: str = ""


class AgentBeat(Message, frozen=True):
    """Heartbeat of an agent, sent on a separate connection."""

    agent: int
    incarnation: str


class FilePart(Message, frozen=True):
    """Piece of a file of the run, at byte offset `start`; the message's buffer has its content."""

    path: str
    start: int


class WantFiles(Message, frozen=True):
    """Request for all files of this directory of the run."""

    directory: str


class FilesSent(Message, frozen=True):
    """Reply to `WantFiles`: files were sent, or `stored` in the depot.

    Otherwise they are `too_large` (their size in bytes), or `gone` because newer ones have replaced
    them.
    """

    agent: int
    directory: str
    too_large: int = 0
    stored: list[str] = []
    gone: bool = False


class FilesStored(Message, frozen=True):
    """Message that these files of the run are available in the depot."""

    names: list[str]


class KeepFiles(Message, frozen=True):
    """Message that all checkpoints other than these may be removed."""

    checkpoints: list[str]


class Spooled(Message, frozen=True):
    """Message that an agent has written its part of the job's data frames to a file.

    `rows` has the number of rows of each of its batches, by frame. `nulls` has the number of rows
    without a value, by frame and column, for columns that have any. `checksums` are those of the
    files, by frame.
    """

    agent: int
    rows: dict[str, list[int]]
    size: int
    nulls: dict[str, dict[str, int]] = {}
    checksums: dict[str, int] = {}
