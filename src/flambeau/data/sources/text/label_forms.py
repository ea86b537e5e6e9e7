"""Numbers that stand for the two classes in text files: 0 and 1, -1 and 1, or 1 and 2."""

import re
from collections.abc import Collection, Iterator
from itertools import islice

from flambeau.config import FileData
from flambeau.config.data import BINARY_FORMS
from flambeau.data.sources.files import open_lines
from flambeau.data.sources.formats import find_format
from flambeau.data.sources.paths import find_files, reading
from flambeau.data.sources.text.row_parser import label_names

#: Formats that do not describe the meaning of their labels.
FORMATS = ("dummy", "libffm", "libfm", "libsvm")
#: Limit of the rows that are searched for a label that is not 1.
MOST_ROWS = 1_000_000
_END_OF_LABEL = re.compile(rb"[\s,]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def recognise(data: FileData, columns: Collection[str]) -> dict[float, float]:
    """Return a mapping of the labels in `columns`; empty if they are 0 and 1, or not binary.

    All forms have the label 1, so the first other label decides.
    """
    if (data.format or find_format(data.path)) not in FORMATS:
        return {}
    names = label_names(data.options.get("labels"), [], least=1)
    places = [place for place, name in enumerate(names) if name in columns]
    for label in islice(_labels(data, places), MOST_ROWS):
        if label != 1.0:
            return dict(BINARY_FORMS.get(label, {}))
    return {}


def _labels(data: FileData, places: list[int]) -> Iterator[float]:
    """Yield the labels of all rows; the reader of the rows reports those that are malformed."""
    for path in find_files(data.path, ("",)):
        with reading(path, "text"), open_lines(path) as lines:
            for line in lines:
                text = line.removeprefix(_BYTE_ORDER_MARK).strip()
                if text and not text.startswith(b"#"):
                    yield from _numbers(_END_OF_LABEL.split(text, maxsplit=1)[0], places)


def _numbers(text: bytes, places: list[int]) -> list[float]:
    parts = text.split(b"#")
    try:
        return [float(parts[place]) for place in places]
    except (ValueError, IndexError):
        return []
