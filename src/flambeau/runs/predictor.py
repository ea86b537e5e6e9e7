"""Predictions for whoever asks, from an export or a run, without a server."""

import threading
from pathlib import Path
from typing import Any, Protocol, final

import pyarrow as pa

from flambeau.checkpoint import RunDirectory
from flambeau.errors import RunDirectoryError
from flambeau.inference.export_chain import newest_of, open_chain
from flambeau.inference.export_description import Since
from flambeau.tables.saved.mapped import MappedTable


class _Served(Protocol):
    @property
    def id(self) -> str: ...
    def predict(self, data: Any) -> pa.Table: ...


@final
class Predictor:
    """A trained model that answers. Any number of threads may use one.

    predictor = fb.Predictor.load("exports/clicks")
    predictor.predict({"user": [17], "item": [4]})["probability"]
    """

    def __init__(self, place: Path, served: _Served, *, trust: bool) -> None:
        self._place, self._served, self._trust = place, served, trust
        self._lock = threading.Lock()

    @classmethod
    def load(cls, place: str | Path, *, trust: bool = False) -> "Predictor":
        """The predictor of an export, of the newest in a folder of exports, or of a run.

        A run may say which checkpoint, `runs/clicks@best`; it needs the model's code, an export
        does not. An export is data, and runs no code of whoever made it; with `trust` one is loaded
        that may, such as a graph of format `torch` or `torchscript`.
        """
        path = Path(place)
        return cls(path, _open(path, None, trust), trust=trust)

    @property
    def id(self) -> str:
        """Which export (or checkpoint) answers now."""
        return self._served.id

    def predict(self, data: Any) -> pa.Table:
        """An Arrow table with a row for each row of `data`, in order.

        `data` is a dict of columns, a data frame (pandas, Polars, Arrow) or a list of dicts, with
        the columns that the model was trained with; columns of `keys` that are there stand beside
        the predictions. An id that no table knows reads as the table's default row.
        """
        return self._served.predict(data)

    def refresh(self) -> bool:
        """Look for something newer at the same place, and use it from now on; whether there was.

        That is another export there, a delta beside it that adds to it, or a newer checkpoint of
        the run. Meanwhile, and if it cannot be read, the old one goes on answering.
        """
        with self._lock:
            newer = _open(self._place, self._served.id, self._trust)
            if newer is None:
                return False
            self._served = newer
            return True


def _open(place: Path, loaded: str | None, trust: bool) -> Any:
    """What answers from this place; None if that is `loaded`."""
    from flambeau.inference.loaded_export import LoadedExport

    if place.is_file():
        raise RunDirectoryError(f"{place} is a file; give the folder of the export or run")
    if _is_run(place):
        from flambeau.runs.loaded_run import open_loaded_run

        return open_loaded_run(str(place), loaded, trust=trust)
    if not place.exists():
        raise RunDirectoryError(f"there is neither an export nor a run at {place}")
    folder = newest_of(place, loaded)
    chain = open_chain(folder, _run_tables)
    return None if chain.newest.id == loaded else LoadedExport(chain, trust=trust)


def _run_tables(base: Path, since: Since) -> dict[str, MappedTable]:
    from flambeau.runs.run_export import open_run_tables

    return open_run_tables(base, since)


def _is_run(place: Path) -> bool:
    from flambeau.checkpoint import parse_reference

    if place.is_dir() and not RunDirectory(place).job_file.is_file():
        return False
    path, _ = parse_reference(str(place))
    return RunDirectory(path).job_file.is_file()
