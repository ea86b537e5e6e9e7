"""Operations that a reader does itself as it parses rows, faster than in separate passes.

The reader of Criteo's logs takes logarithms and hashes texts in the pass over the bytes that finds
them. If a pipeline begins with exactly these operations, the reader does them, with the same bits.
"""

from collections.abc import Sequence

from flambeau.data.source import StreamedSource
from flambeau.data.sources.row_share import RowShare
from flambeau.data.sources.text.criteo import CriteoParser
from flambeau.data.sources.text.text_source import TextSource
from flambeau.features.operation import Operation
from flambeau.features.operations.hashing import Hash
from flambeau.features.operations.numbers import Log


def fuse(source: StreamedSource, operations: Sequence[Operation]) -> tuple[StreamedSource, int]:
    """Return a source that does the first operations as it reads, and their number."""
    if isinstance(source, RowShare):
        inner, done = fuse(source.source, operations)
        return (RowShare(inner, source.share) if done else source), done
    if len(operations) < 2 or not isinstance(source, TextSource):
        return source, 0
    parser = source.parser
    if not isinstance(parser, CriteoParser) or not parser.raw:
        return source, 0
    log, hashing = operations[:2]
    if not (isinstance(log, Log) and isinstance(hashing, Hash)):
        return source, 0
    plain = hashing.salt is None and hashing.modulo is None
    in_place = log.out is None and hashing.out is None
    whole = set(log.reads(source.schema)) == set(parser.numbers) and set(
        hashing.reads(source.schema)
    ) == set(parser.texts)
    if not (plain and in_place and whole):
        return source, 0
    return source.parsed_by(parser.converting()), 2
