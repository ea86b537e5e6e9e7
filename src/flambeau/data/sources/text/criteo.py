"""Criteo's click logs: labels, 13 integers and 26 hexadecimal texts, separated by tabs."""

from collections.abc import Sequence
from typing import Any, Literal, final, get_args

import numpy as np
import pyarrow as pa

from flambeau.config.plural import number_of
from flambeau.config.settings import nearest
from flambeau.data.sources.paths import Paths
from flambeau.data.sources.text.row_faults import Fault, OnBadRow
from flambeau.data.sources.text.row_parser import Parsed, RowParser, label_names, require_count
from flambeau.data.sources.text.text_lines import Bytes
from flambeau.data.sources.text.text_source import SHARD_BYTES, TextSource
from flambeau.errors import ConfigError

Dense = Literal["log", "raw"]


def open_criteo(
    path: Paths,
    *,
    labels: Sequence[str] | None = None,
    dense: Dense = "log",
    raw: bool = False,
    dense_columns: int = 13,
    id_columns: int = 26,
    on_bad_row: OnBadRow = "error",
    shard_bytes: int = SHARD_BYTES,
) -> TextSource:
    """Open logs with columns `label` (or `labels`), `I1`, ... (float32) and `C1`, ... (int64 ids).

    An integer becomes log(1 + max(x, 0)), and 0 if it is missing; with `dense="raw"` it is
    unchanged, and NaN if missing. Texts become 64-bit hashes, salted by the column's name, and null
    if missing. With `raw`, for pipelines of features, numbers are float64 and texts are not hashed;
    both are null if missing.
    """
    if dense not in get_args(Dense):
        raise ConfigError(f"dense={dense!r}: {nearest(str(dense), get_args(Dense))}")
    names, numbers, texts = _columns(labels, dense_columns, id_columns)
    logarithm = dense == "log" and not raw
    parser = CriteoParser(names, numbers, texts, logarithm=logarithm, raw=raw)
    return TextSource(path, parser, on_bad_row=on_bad_row, shard_bytes=shard_bytes)


def log_schema(
    *,
    labels: Sequence[str] | None = None,
    raw: bool = False,
    dense_columns: int = 13,
    id_columns: int = 26,
) -> pa.Schema:
    """Return the columns of logs with their types, without any file."""
    names, numbers, texts = _columns(labels, dense_columns, id_columns)
    return CriteoParser(names, numbers, texts, logarithm=not raw, raw=raw).schema


def _columns(
    labels: Sequence[str] | None, dense_columns: int, id_columns: int
) -> tuple[list[str], list[str], list[str]]:
    """Return the names of labels, of numbers and of texts."""
    numbers = [f"I{n + 1}" for n in range(require_count("dense_columns", dense_columns, 0))]
    texts = [f"C{n + 1}" for n in range(require_count("id_columns", id_columns, 0))]
    names = label_names(labels, [*numbers, *texts], least=0)
    if not (names or numbers or texts):
        raise ConfigError("labels, dense_columns and id_columns name no column at all")
    return list(names), numbers, texts


@final
class CriteoParser(RowParser):
    """Parser with float32 labels and numbers, and int64 hashes of texts, or `raw` values."""

    def __init__(
        self,
        labels: Sequence[str],
        numbers: Sequence[str],
        texts: Sequence[str],
        *,
        logarithm: bool,
        raw: bool = False,
    ) -> None:
        self._labels, self._numbers, self._texts = list(labels), list(numbers), list(texts)
        self._logarithm = logarithm
        #: Whether numbers and texts are unchanged.
        self.raw = raw
        self.schema = pa.schema(
            {
                **dict.fromkeys(labels, pa.float32()),
                **dict.fromkeys(numbers, pa.float64() if raw else pa.float32()),
                **dict.fromkeys(texts, pa.string() if raw else pa.int64()),
            }
        )

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the columns of numbers."""
        return tuple(self._numbers)

    @property
    def texts(self) -> tuple[str, ...]:
        """Names of the columns of texts."""
        return tuple(self._texts)

    def converting(self) -> "CriteoParser":
        """Return the parser of the same rows that takes logarithms and hashes texts itself."""
        return CriteoParser(self._labels, self._numbers, self._texts, logarithm=True)

    def count(self, data: Bytes) -> int:
        from flambeau.data.sources.text.number_kernels import count_rows

        return count_rows(data, -1, False)

    def parse(self, data: Bytes, *, skip: bool) -> Parsed:
        from flambeau.data.sources.text.criteo_kernels import parse_criteo
        from flambeau.data.text_hash import salt_of

        rows = self.count(data) + 1  # one more for a bad row after the last good one
        salts = np.array([salt_of(name) for name in self._texts], np.uint64)
        labels = np.empty((len(self._labels), rows), np.float32)
        dense = np.empty((len(self._numbers), rows), np.float64 if self.raw else np.float32)
        ids = np.empty((len(self._texts), rows), np.int64)
        valid = np.zeros((len(self._texts), rows // 8 + 1), np.uint8)
        found, skipped, *fault = parse_criteo(
            data, skip, self._logarithm, not self.raw, salts, labels, dense, ids, valid
        )
        columns = [pa.array(column[:found]) for column in labels]
        columns += [pa.array(column[:found], from_pandas=self.raw) for column in dense]
        for pair in zip(ids, valid, strict=True):
            columns.append(_texts(data, *pair, found) if self.raw else _ids(*pair, found))
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return Parsed(batch, skipped, Fault(*fault) if fault[0] else None)

    def describe(self, line: bytes) -> str:
        wanted = len(self._labels) + len(self._numbers) + len(self._texts)
        found = line.count(b"\t") + 1
        return (
            f"the row has {number_of(found, 'column')} between tabs, and should have {wanted}: "
            f"{number_of(len(self._labels), 'label')}, {number_of(len(self._numbers), 'number')}, "
            f"{number_of(len(self._texts), 'text')}"
        )


def _ids(ids: np.ndarray[Any, Any], valid: np.ndarray[Any, Any], rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), rows, [pa.py_buffer(valid), pa.py_buffer(ids)])


def _texts(
    data: Bytes, spans: np.ndarray[Any, Any], valid: np.ndarray[Any, Any], rows: int
) -> pa.Array:
    from flambeau.data.sources.text.criteo_kernels import copy_texts, text_bounds

    bounds = np.empty(rows + 1, np.int32)
    text_bounds(spans[:rows], bounds)
    texts = np.empty(bounds[-1], np.uint8)
    copy_texts(data, spans[:rows], texts)
    buffers = [pa.py_buffer(valid), pa.py_buffer(bounds), pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.string(), rows, buffers)
