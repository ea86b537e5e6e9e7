"""Features of a DataFrame: `python spark_features.py [--remote] FOLDER`, which has rows.parquet."""

import json
import sys
from pathlib import Path

from feature_rows import SPLIT, pipeline
from pyspark.sql import SparkSession

if __name__ == "__main__":
    folder = Path(sys.argv[-1])
    builder = SparkSession.builder
    remote = sys.argv[1] == "--remote"
    session = (builder.remote if remote else builder.master)("local[2]").getOrCreate()
    frame = session.read.parquet(str(folder / "rows.parquet")).repartition(3)
    features = pipeline().fit(frame)
    features.transform(frame).write.parquet(str(folder / "features"))
    pipeline().fit_transform(frame, split=SPLIT, out=folder / "out")
    (folder / "found.json").write_text(json.dumps({"digest": features.digest}))
    session.stop()
