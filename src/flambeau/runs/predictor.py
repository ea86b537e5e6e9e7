"""Predictions in any process, from an export or a run, without a server."""

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
    """A trained model for predictions. Thread-safe.

    predictor = fb.Predictor.load("exports/clicks")
    predictor.predict({"user": [17], "item": [4]})["probability"]
    """

    def __init__(self, place: Path, served: _Served, *, trust: bool) -> None:
        self._place, self._served, self._trust = place, served, trust
        self._lock = threading.Lock()

    @classmethod
    def load(cls, place: str | Path, *, trust: bool = False) -> "Predictor":
        """Load an export, the newest one in a folder of exports, or a run.

        A run may name a checkpoint: `runs/clicks@best`. It needs the model's code; an export does
        not. An export is data and does not run its author's code. With `trust`, exports that may
        run code are loaded, too, such as a graph of format `torch` or `torchscript`.
        """
        path = Path(place)
        return cls(path, _open(path, None, trust), trust=trust)

    @property
    def id(self) -> str:
        """Id of the export, or name of the checkpoint, that predicts now."""
        return self._served.id

    def predict(self, data: Any) -> pa.Table:
        """Return an Arrow table with a row for each row of `data`, in order.

        `data` is a dict of columns, a data frame (pandas, Polars, Arrow) or a list of dicts, with
        the columns that the model was trained with. Columns of `keys` that it has precede the
        predictions. An id without a row in a table reads as the table's default row.
        """
        return self._served.predict(data)

    def refresh(self) -> bool:
        """Switch to a newer model at the same place, if there is one; return whether there was.

        That is a newer export there, a delta to it beside it, or a newer checkpoint of the run.
        Until it is loaded, and if it cannot be read, the old one continues to predict.
        """
        with self._lock:
            newer = _open(self._place, self._served.id, self._trust)
            if newer is None:
                return False
            self._served = newer
            return True


def _open(place: Path, loaded: str | None, trust: bool) -> Any:
    """Open the predictor of this place; return None if it is the one `loaded`."""
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
