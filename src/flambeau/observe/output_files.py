"""The output of processes, in one file per process."""

from pathlib import Path
from typing import TextIO, final

from flambeau.errors import ConfigError
from flambeau.observe.event import Event, Observer
from flambeau.observe.progress import display


@final
class OutputFiles(Observer):
    """Files `rank-<rank>.log` with the output of each worker; other events are shown as usual."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be a folder of logs: {error.strerror}") from None
        self._folder, self._files = folder, dict[int, TextIO]()
        self._shown = display("lines", every_seconds=5.0)

    def observe(self, event: Event) -> None:
        """Write a line of output to the file of its process, or show another event."""
        if event.kind != "log":
            self._shown.observe(event)
            return
        rank = event.fields["rank"]
        if rank not in self._files:
            path = self._folder / f"rank-{rank}.log"
            self._files[rank] = path.open("w", encoding="utf-8", buffering=1)
        self._files[rank].write(f"{event.fields['text']}\n")

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._shown.close()
