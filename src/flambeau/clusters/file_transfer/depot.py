"""A folder, given by URL, through which driver and agents exchange large files."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import final

from flambeau.clusters.file_transfer.file_parts import below
from flambeau.data.sources.urls import file_system, transferring


@final
class Depot:
    """A folder that only one job uses. Names are those of files in the run."""

    def __init__(self, url: str) -> None:
        self.url = url

    def put(self, files: Mapping[str, Path]) -> None:
        """Copy files to the folder, under these names."""
        for name, path in files.items():
            system, place = file_system(f"{self.url}/{name}")
            with transferring(self.url, "written"):
                system.makedirs(place.rpartition("/")[0], exist_ok=True)
                system.put_file(str(path), place)

    def get(self, names: Iterable[str], root: Path) -> None:
        """Copy files from the folder to their places below `root`."""
        for name in names:
            target = below(root, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            system, place = file_system(f"{self.url}/{name}")
            with transferring(f"{self.url}/{name}"):
                system.get_file(place, str(target))

    def take(self, names: Iterable[str], root: Path) -> None:
        """Move files from the folder to their places below `root`."""
        for name in names:
            self.get([name], root)
            system, place = file_system(f"{self.url}/{name}")
            with transferring(self.url, "written"):
                system.rm_file(place)

    def remove(self) -> None:
        """Remove the folder."""
        system, place = file_system(self.url)
        with transferring(self.url, "written"):
            if system.exists(place):
                system.rm(place, recursive=True)
