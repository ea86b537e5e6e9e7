"""Data of a job: files in Angel's formats, whole or split by `testRatio`."""

import json
from functools import cache
from typing import Any

import pyarrow as pa
import torch

from flambeau.compat.angel.contract import Contract
from flambeau.compat.angel.model import COLUMN, check_ids
from flambeau.compat.angel.splitting import Split
from flambeau.compat.angel.words import AngelJob
from flambeau.config import CodeRef, DataRef, DatasetData, FileData
from flambeau.data.arrow_columns import to_columns
from flambeau.data.jagged import Jagged
from flambeau.data.source import StreamedSource
from flambeau.data.sources.files import open_stream, size_of
from flambeau.data.sources.opening import open_source
from flambeau.data.sources.paths import find_files
from flambeau.data.sources.text.text_source import SHARD_BYTES
from flambeau.errors import ConfigError

#: Smaller shards would cost more to assign than they gain by spreading the work.
SMALL_SHARD_BYTES = 1 << 16
#: Number of bytes that is enough to detect the format of the first row.
FIRST_BYTES = 1 << 12


def data_format(job: AngelJob, contract: Contract) -> str:
    """Return the format that a job names, or that its model needs."""
    return job.data_format or ("libffm" if contract.takes_fields else "libsvm")


def check_form(path: str, form: str, contract: Contract) -> None:
    """Raise `ConfigError` for libffm files if another format is needed, and vice versa."""
    if form == "dummy":
        return
    first = find_files(path, ("",))[0]
    with open_stream(first) as stream:
        items = stream.read(FIRST_BYTES).partition(b"\n")[0].split()[1:2]
    looks = {1: "libsvm", 2: "libffm"}.get(items[0].count(b":")) if items else None
    if looks is None or looks == form:
        return
    item = items[0].decode(errors="replace")
    if contract.takes_fields == (looks == "libffm"):
        change = f"dataFormat:{form} does not fit; leave it out, or give dataFormat:{looks}"
    else:
        encode = "multihot" if looks == "libffm" else "onehot"
        change = (
            f"a model of type {contract.kind} takes {form}; give such files, or a model made with "
            f"--encode {encode} (flambeau angel make)"
        )
    raise ConfigError(f"{first} looks like {looks} ('{item}'): {change}")


def train_and_held_out(job: AngelJob, form: str) -> tuple[DataRef, DataRef | None]:
    """Return the data to train on, and the data to evaluate on or None."""
    train = files(job, job.train_input, form)
    if job.validate_input:
        return train, files(job, job.validate_input, form)
    if not job.test_ratio:
        return train, None
    return _part(job, train, held_out=False), _part(job, train, held_out=True)


def files(job: AngelJob, path: str, form: str) -> FileData:
    """Return all rows of some files, in at most `numDataPartitions` shards unless small."""
    size = sum(map(size_of, find_files(path, ("",))))
    wanted = -(-size // job.num_data_partitions)
    shard_bytes = min(SHARD_BYTES, max(SMALL_SHARD_BYTES, wanted))
    return FileData(path=path, format=form, options={"shard_bytes": shard_bytes})


def open_files(data: FileData) -> StreamedSource:
    """Open the source of some files."""
    source = open_source(data, user_code_is_not_needed)
    assert isinstance(source, StreamedSource)
    return source


def open_part(data: dict[str, Any], ratio: float, *, held_out: bool, seed: int) -> StreamedSource:
    """Open the rows of some files that are held out, or the others."""
    return Split(_open_once(json.dumps(data)), ratio, held_out=held_out, seed=seed)


@cache
def _open_once(data: str) -> StreamedSource:
    """Open the files of both parts of a split once, so that a worker counts their lines once."""
    return open_files(FileData.parse(json.loads(data)))


def user_code_is_not_needed(ref: CodeRef) -> Any:
    """Raise `AssertionError`: files contain no user code."""
    raise AssertionError(ref.name)


def check_rows(source: StreamedSource, input_dim: int) -> int:
    """Check the ids of all rows against the model's `input_dim`; return the number of rows."""
    extremes = [
        torch.stack(ids.aminmax())
        for shard in source.shards()
        for records in source.read(shard, [COLUMN])
        if len(ids := _ids(records))
    ]
    if extremes:
        check_ids(torch.cat(extremes), input_dim)
    rows = sum(shard.rows for shard in source.shards())
    if not rows:
        raise ConfigError("the data has no rows")
    return rows


def _ids(records: pa.RecordBatch) -> torch.Tensor:
    column = to_columns(records, inputs={COLUMN})[COLUMN]
    return column.ids if isinstance(column, Jagged) else torch.as_tensor(column).reshape(-1)


def _part(job: AngelJob, data: FileData, *, held_out: bool) -> DatasetData:
    args = {
        "data": data.model_dump(mode="json"),
        "ratio": job.test_ratio,
        "held_out": held_out,
        "seed": job.seed,
    }
    return DatasetData(code=CodeRef(path=f"{__name__}:{open_part.__name__}", args=args, call=True))
