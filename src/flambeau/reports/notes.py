"""Texts and spans of time of a run, of which there is a limited number."""

from typing import final

import msgspec

#: Of more notes, the first half and the latest half stay.
MOST = 400


@final
class Note(msgspec.Struct, frozen=True):
    """Something that happened: `kind` is that of the event."""

    kind: str
    elapsed: float
    step: int
    text: str


@final
class Notes(msgspec.Struct):
    """The first notes and the latest ones."""

    items: list[Note] = []
    left_out: int = 0

    def add(self, note: Note) -> None:
        """Add a note; one from the middle leaves if there are too many."""
        if len(self.items) >= MOST:
            del self.items[MOST // 2]
            self.left_out += 1
        self.items.append(note)


@final
class Span(msgspec.Struct):
    """A time in which a job was in one phase: "starting", "training" or "stopped".

    Times are elapsed seconds. What is stopped takes no time: the line ends, and resumes later.
    """

    phase: str
    begin: float
    end: float


@final
class Spans(msgspec.Struct):
    """What the job was doing when."""

    items: list[Span] = []

    def enter(self, phase: str, elapsed: float) -> None:
        """Begin a phase, and end the one before."""
        self.reach(elapsed)
        if len(self.items) >= MOST:
            self.items[MOST // 2].end = self.items.pop(MOST // 2 + 1).end
        self.items.append(Span(phase, elapsed, elapsed))

    def reach(self, elapsed: float) -> None:
        """Note that the phase lasts until now at least."""
        if self.items:
            self.items[-1].end = max(self.items[-1].end, elapsed)
