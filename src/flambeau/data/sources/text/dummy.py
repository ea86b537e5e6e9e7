"""Dummy files of ids without values: `label,id,id,...`, or separated by blanks."""

from collections.abc import Sequence

from flambeau.data.sources.paths import Paths
from flambeau.data.sources.text.bags import FEATURES, BagParser
from flambeau.data.sources.text.row_faults import OnBadRow
from flambeau.data.sources.text.row_parser import label_names
from flambeau.data.sources.text.text_source import SHARD_BYTES, TextSource

SUFFIXES = (".dummy", ".dummy.gz", ".dummy.zst")


def open_dummy(
    path: Paths,
    *,
    labels: Sequence[str] | None = None,
    on_bad_row: OnBadRow = "error",
    shard_bytes: int = SHARD_BYTES,
) -> TextSource:
    """Open files with columns `label` (or `labels`, joined with `#`) and `features` (ids).

    Ids count from 0.
    """
    parser = BagParser(label_names(labels, [FEATURES], least=1), parts=1)
    return TextSource(path, parser, on_bad_row=on_bad_row, shard_bytes=shard_bytes)
