"""Notes and time spans of a run, limited in number."""

from typing import final

import msgspec

#: Most notes, and most spans; above it, those in the middle are left out or merged.
MOST = 400


@final
class Note(msgspec.Struct, frozen=True):
    """A notable event; `kind` is the kind of the event."""

    kind: str
    elapsed: float
    step: int
    text: str


@final
class Notes(msgspec.Struct):
    """The first notes and the latest ones of a run."""

    items: list[Note] = []
    left_out: int = 0

    def add(self, note: Note) -> None:
        """Add a note; one from the middle is removed if there are too many."""
        if len(self.items) >= MOST:
            del self.items[MOST // 2]
            self.left_out += 1
        self.items.append(note)


@final
class Span(msgspec.Struct):
    """A time span in which a job was in one phase: "starting", "training" or "stopped".

    Times are elapsed seconds, which do not count the time between "stopped" and a resumed part.
    """

    phase: str
    begin: float
    end: float


@final
class Spans(msgspec.Struct):
    """The phases of a job over time."""

    items: list[Span] = []

    def enter(self, phase: str, elapsed: float) -> None:
        """End the current phase, and begin another."""
        self.reach(elapsed)
        if len(self.items) >= MOST:
            self.items[MOST // 2].end = self.items.pop(MOST // 2 + 1).end
        self.items.append(Span(phase, elapsed, elapsed))

    def reach(self, elapsed: float) -> None:
        """Extend the current phase to at least `elapsed`."""
        if self.items:
            self.items[-1].end = max(self.items[-1].end, elapsed)
