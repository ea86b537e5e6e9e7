"""Files too large for messages go through a folder that driver and agents reach by a URL."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import final

from flambeau.clusters.file_transfer.file_parts import below
from flambeau.data.sources.urls import file_system, transferring


@final
class Depot:
    """The folder. Names are those of files in the run; what is there is this job's alone."""

    def __init__(self, url: str) -> None:
        self.url = url

    def put(self, files: Mapping[str, Path]) -> None:
        """Copy files there, under these names."""
        for name, path in files.items():
            system, place = file_system(f"{self.url}/{name}")
            with transferring(self.url, "written"):
                system.makedirs(place.rpartition("/")[0], exist_ok=True)
                system.put_file(str(path), place)

    def get(self, names: Iterable[str], root: Path) -> None:
        """Copy files from there to their places below `root`."""
        for name in names:
            target = below(root, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            system, place = file_system(f"{self.url}/{name}")
            with transferring(f"{self.url}/{name}"):
                system.get_file(place, str(target))

    def take(self, names: Iterable[str], root: Path) -> None:
        """The same, and leave nothing there."""
        for name in names:
            self.get([name], root)
            system, place = file_system(f"{self.url}/{name}")
            with transferring(self.url, "written"):
                system.rm_file(place)

    def remove(self) -> None:
        """Leave no folder."""
        system, place = file_system(self.url)
        with transferring(self.url, "written"):
            if system.exists(place):
                system.rm(place, recursive=True)
