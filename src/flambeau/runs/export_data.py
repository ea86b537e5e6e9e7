"""Input data of an export: files with the columns that it takes."""

from pathlib import Path
from typing import Any

from flambeau.config import FileData
from flambeau.data.data_kinds import as_files, is_paths
from flambeau.data.prepared_files import prepared_by
from flambeau.data.source import StreamedSource
from flambeau.data.sources.opening import open_source
from flambeau.errors import ConfigError, DataError
from flambeau.inference.export_chain import newest_of, open_chain
from flambeau.inference.export_description import FEATURES
from flambeau.runs.run_export import open_run_tables


def open_data_for(place: Path, data: Any) -> tuple[StreamedSource, str]:
    """Return the rows of files for an export, and the export's id.

    Files whose format cannot be detected have the format of the export's features, if it has any.
    """
    chain = open_chain(newest_of(place, None), open_run_tables)
    files = as_files(data) if is_paths(data) else data
    if not isinstance(files, FileData):
        raise ConfigError("an export predicts for files; use fb.Predictor for rows in memory")
    if chain.newest.features is not None:
        from flambeau.features.raw_data import open_rows
        from flambeau.features.saved import format_of

        if prepared_by(files) == chain.newest.features:
            raise DataError(
                f"{files.path} has features that were prepared; give the export raw data, or "
                "predict with the run"
            )
        return open_rows(files, format_of(chain.folders[0] / FEATURES)), chain.newest.id
    source = open_source(files, _no_code)
    if not isinstance(source, StreamedSource):
        raise DataError(f"{files.path}: an export predicts for tables, not for images or arrays")
    return source, chain.newest.id


def _no_code(ref: Any) -> Any:
    raise AssertionError("files need no code")
