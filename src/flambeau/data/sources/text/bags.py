"""Text rows of labels and a bag of ids, with values and fields, as Arrow batches."""

from typing import Any, final

import numpy as np
import pyarrow as pa

from flambeau.data.arrow_columns import MEMBERS
from flambeau.data.sources.text.row_faults import Fault
from flambeau.data.sources.text.row_parser import Parsed, RowParser
from flambeau.data.sources.text.text_lines import Bytes

FEATURES = "features"
_TYPES = (pa.int64(), pa.float32(), pa.int64())
_SHAPES = {1: "label,id,id,...", 2: "label id:value ...", 3: "label field:id:value ..."}


@final
class BagParser(RowParser):
    """Parser with float32 labels, and `features` with `parts` members: ids, values, fields.

    `first_id` is subtracted from ids. With `comments`, text from a `#` to the end of the line is a
    comment; not with several labels, which are joined with `#`.
    """

    def __init__(
        self, labels: tuple[str, ...], parts: int, first_id: int = 0, *, comments: bool = False
    ) -> None:
        self._labels, self._parts, self._first_id = labels, parts, first_id
        self._comment = ord("#") if comments and len(labels) == 1 else -1
        members = pa.struct(list(zip(MEMBERS, _TYPES, strict=True))[:parts])
        columns = {**dict.fromkeys(labels, pa.float32()), FEATURES: pa.list_(members)}
        self.schema = pa.schema(columns)

    def count(self, data: Bytes) -> int:
        from flambeau.data.sources.text.number_kernels import count_rows

        return count_rows(data, self._comment, True)

    def parse(self, data: Bytes, *, skip: bool) -> Parsed:
        from flambeau.data.sources.text.bag_kernels import parse_bags

        rows, items = self._capacity(data)
        labels = np.empty((len(self._labels), rows), np.float32)
        offsets = np.empty(rows + 1, np.int32)
        ids = np.empty(items, np.int64)
        values = np.empty(items if self._parts > 1 else 0, np.float32)
        fields = np.empty(items if self._parts > 2 else 0, np.int64)
        arrays = (labels, offsets, ids, values, fields)
        found, skipped, *fault = parse_bags(
            data, self._parts, self._comment, self._first_id, skip, *arrays
        )
        members = (ids, values, fields)[: self._parts]
        batch = self._batch(labels[:, :found], offsets[: found + 1], members)
        return Parsed(batch, skipped, Fault(*fault) if fault[0] else None)

    def describe(self, line: bytes) -> str:
        return f"a row is {_SHAPES[self._parts]!r}"

    def _capacity(self, data: Bytes) -> tuple[int, int]:
        """Return upper limits of the numbers of rows and of items."""
        from flambeau.data.sources.text.number_kernels import capacity

        between = b", \t" if self._parts == 1 else b":::"
        lines, marks = capacity(data, *between)
        # One more for an item of which a part is written before it is found to be bad.
        return lines + 1, marks // max(self._parts - 1, 1) + 1

    def _batch(
        self, labels: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], members: tuple[Any, ...]
    ) -> pa.RecordBatch:
        schema, used = self.schema, int(offsets[-1])
        items = pa.StructArray.from_arrays(
            [pa.array(part[:used]) for part in members], names=list(MEMBERS[: self._parts])
        )
        bags = pa.ListArray.from_arrays(pa.array(offsets), items, type=schema.field(FEATURES).type)
        return pa.RecordBatch.from_arrays([*map(pa.array, labels), bags], schema=schema)
