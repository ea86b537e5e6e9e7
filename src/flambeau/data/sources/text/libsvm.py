"""libsvm files: `label id:value id:value ...`."""

from collections.abc import Sequence

from flambeau.data.sources.paths import Paths
from flambeau.data.sources.text.bags import FEATURES, BagParser
from flambeau.data.sources.text.row_faults import OnBadRow
from flambeau.data.sources.text.row_parser import label_names, require_count
from flambeau.data.sources.text.text_source import SHARD_BYTES, TextSource

SUFFIXES = tuple(name + packed for name in (".libsvm", ".svm") for packed in ("", ".gz", ".zst"))
#: Files of libFM, which are the same except that ids count from 0.
FROM_ZERO = (".libfm", ".libfm.gz", ".libfm.zst")


def open_libsvm(
    path: Paths,
    *,
    first_id: int = 1,
    labels: Sequence[str] | None = None,
    on_bad_row: OnBadRow = "error",
    shard_bytes: int = SHARD_BYTES,
) -> TextSource:
    """Open files with columns `label` (or `labels`, joined with `#`) and `features` (ids, values).

    Ids count from `first_id` in the file and from 0 in the column. With one label, `#` begins a
    comment, at the start of a line or after a blank.
    """
    parser = BagParser(
        label_names(labels, [FEATURES], least=1),
        parts=2,
        first_id=require_count("first_id", first_id, 0),
        comments=True,
    )
    return TextSource(path, parser, on_bad_row=on_bad_row, shard_bytes=shard_bytes)
