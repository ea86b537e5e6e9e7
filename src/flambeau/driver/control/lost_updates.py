"""The coordinator's count of updates that an asynchronous job has lost with servers."""

from typing import final


@final
class LostUpdates:
    """The number of updates that servers had made but not saved when they were lost.

    An update counts once, whether one server or all had made their part of it, and even if the
    worker that sent it is lost as well.
    """

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self._counted_to = 0
        #: Updates in a checkpoint, by its step. There may be more than its step: workers were still
        #: making updates when they were called to save it.
        self._saved: dict[int, int] = {}

    def saved(self, checkpoint: int, updates: int) -> None:
        """Record that the checkpoint of a step contains `updates` updates, all so far."""
        self._saved[checkpoint] = updates

    def restored(self, checkpoint: int, updates: int) -> None:
        """Count the updates lost when a server returns to a checkpoint after `updates` updates."""
        kept = max(self._saved.get(checkpoint, checkpoint), self._counted_to)
        self.count += max(0, updates - kept)
        self._counted_to = max(self._counted_to, updates)
