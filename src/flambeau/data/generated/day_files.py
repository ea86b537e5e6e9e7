"""File of one day of a click log, in either format."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flambeau.data.generated.drawing import MISSING_NUMBER, DrawnRows
from flambeau.data.generated.effects import Array
from flambeau.data.generated.settings import ClickLog
from flambeau.data.generated.text_rows import as_lines, as_texts


class TextDay:
    """Lines as in Criteo's logs: labels, numbers and ids of 8 hexadecimal digits, between tabs."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)

    def write(self, first: int, labels: Array, rows: DrawnRows) -> None:
        """Append lines."""
        rest = as_lines(labels, rows)
        while rest:
            rest = rest[self._file.write(rest) :]

    def close(self) -> None:
        """Close the file, which is complete."""
        self._file.close()


class ParquetDay:
    """Parquet columns: labels, `I1`..., `C1`..., `day`, and `row`, which identifies a row.

    The label is `label`, or `click` and `conversion`.
    """

    def __init__(self, path: Path, log: ClickLog, day: int) -> None:
        self._day = day
        kinds = [
            *((name, pa.int64()) for name in log.label_columns),
            *((f"I{j + 1}", pa.float32()) for j in range(log.dense)),
            *((f"C{f + 1}", pa.string()) for f in range(log.fields)),
            ("day", pa.int64()),
            ("row", pa.int64()),
        ]
        self._schema = pa.schema(kinds)
        self._writer = pq.ParquetWriter(path, self._schema)

    def write(self, first: int, labels: Array, rows: DrawnRows) -> None:
        """Append a row group."""
        count = len(labels)
        columns = [
            *(pa.array(labels[:, k].astype(np.int64)) for k in range(labels.shape[1])),
            *(_numbers(rows.numbers[:, j]) for j in range(rows.numbers.shape[1])),
            *(_texts(rows.codes[:, f], rows.present[:, f]) for f in range(rows.codes.shape[1])),
            pa.array(np.full(count, self._day)),
            pa.array(np.arange(first, first + count)),
        ]
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))

    def close(self) -> None:
        """Close the file, which is complete."""
        self._writer.close()


def _numbers(values: Array) -> pa.Array:
    return pa.array(values.astype(np.float32), mask=values == MISSING_NUMBER)


def _texts(codes: Array, present: Array) -> pa.Array:
    ends = np.concatenate([[0], np.cumsum(present) * 8]).astype(np.int32)
    valid = np.packbits(present, bitorder="little")
    buffers = [valid, ends, as_texts(np.ascontiguousarray(codes[present]))]
    return pa.Array.from_buffers(pa.string(), len(codes), [pa.py_buffer(each) for each in buffers])
