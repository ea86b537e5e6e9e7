"""libffm files: `label field:id:value field:id:value ...`."""

from collections.abc import Sequence

from flambeau.data.sources.paths import Paths
from flambeau.data.sources.text.bags import FEATURES, BagParser
from flambeau.data.sources.text.row_faults import OnBadRow
from flambeau.data.sources.text.row_parser import label_names, require_count
from flambeau.data.sources.text.text_source import SHARD_BYTES, TextSource

SUFFIXES = tuple(name + packed for name in (".libffm", ".ffm") for packed in ("", ".gz", ".zst"))


def open_libffm(
    path: Paths,
    *,
    first_id: int = 1,
    labels: Sequence[str] | None = None,
    on_bad_row: OnBadRow = "error",
    shard_bytes: int = SHARD_BYTES,
) -> TextSource:
    """Open files with `label` (or `labels`, joined with `#`) and `features` (ids, values, fields).

    Ids count from `first_id` in the file and from 0 in the column; fields are unchanged.
    """
    parser = BagParser(
        label_names(labels, [FEATURES], least=1),
        parts=3,
        first_id=require_count("first_id", first_id, 0),
    )
    return TextSource(path, parser, on_bad_row=on_bad_row, shard_bytes=shard_bytes)
