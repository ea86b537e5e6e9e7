"""A barrier stage: `python barrier.py MASTER` (classic) or `python barrier.py --remote MASTER`."""

import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession


def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import BarrierTaskContext

    counts = BarrierTaskContext.get().allGather(str(sum(batch.num_rows for batch in batches)))
    yield pa.RecordBatch.from_pydict({"rows": [sum(map(int, counts))]})


if __name__ == "__main__":
    builder = SparkSession.builder
    remote = sys.argv[1] == "--remote"
    session = (builder.remote if remote else builder.master)(sys.argv[-1]).getOrCreate()
    frame = session.range(100).repartition(2).mapInArrow(rows, "rows long", barrier=True)
    print(pyspark.__version__, [row.rows for row in frame.collect()])
    session.stop()
