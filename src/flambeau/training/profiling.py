"""A callback that traces steps with torch.profiler into the run's TensorBoard folder."""

from pathlib import Path
from typing import Any, final

import torch

from flambeau.training.callbacks import Callback, TrainingView


@final
class Profiler(Callback):
    """Callback that traces steps `first` to `last` (not included) on every worker."""

    def __init__(self, first: int, last: int, directory: Path) -> None:
        self._first, self._last, self._directory = first, last, directory
        self._profile: Any = None

    def on_start(self, view: TrainingView) -> None:
        """Start the trace if the first step is to be traced."""
        self._begin_if_due(view)

    def on_step_end(self, view: TrainingView) -> None:
        """Start or end the trace."""
        self._begin_if_due(view)
        if view.step >= self._last:
            self.on_end(view)

    def on_end(self, view: TrainingView) -> None:
        """Write the trace."""
        if self._profile is None:
            return
        profile, self._profile = self._profile, None
        profile.stop()
        self._directory.mkdir(parents=True, exist_ok=True)
        name = f"worker-{view.rank}.steps-{self._first}-{self._last}.pt.trace.json"
        profile.export_chrome_trace(str(self._directory / name))

    def _begin_if_due(self, view: TrainingView) -> None:
        if view.step == self._first and self._profile is None:
            self._profile = torch.profiler.profile()
            self._profile.start()
