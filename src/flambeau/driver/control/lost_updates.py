"""Updates of an asynchronous job that were lost with servers, as the coordinator counts them."""

from typing import final


@final
class LostUpdates:
    """Updates that servers had made and not saved when they were lost.

    An update counts once, whether one server had made its part of it or all had, and whether any
    worker is left that knows of it.
    """

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self._counted_to = 0
        #: Updates in a checkpoint, by its step, where they are more: those that workers were
        #: making when they were called to save it.
        self._saved: dict[int, int] = {}

    def saved(self, checkpoint: int, updates: int) -> None:
        """Take note that the checkpoint of a step has all updates so far."""
        self._saved[checkpoint] = updates

    def restored(self, checkpoint: int, updates: int) -> None:
        """Count what is lost when a server returns to a checkpoint after so many updates."""
        kept = max(self._saved.get(checkpoint, checkpoint), self._counted_to)
        self.count += max(0, updates - kept)
        self._counted_to = max(self._counted_to, updates)
