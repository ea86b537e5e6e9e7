"""The life of a job, as its controller sees it."""

from enum import Enum


class Phase(Enum):
    """The life of a job."""

    GATHERING = "waiting for the agents"
    PREPARING = "the next generation starts when its starting point is known and its delay is over"
    RUNNING = "the roles of a generation are at work"
    SETTLING = "something failed; its cause is being found out"
    ENDING = "the generation's processes are being ended"
    OVER = "no process is left"
