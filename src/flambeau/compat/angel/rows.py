"""The data of a job: files in Angel's formats, whole or split by `testRatio`."""

import torch

from flambeau.compat.angel.contract import Contract
from flambeau.compat.angel.model import COLUMN, check_ids
from flambeau.compat.angel.splitting import Split
from flambeau.compat.angel.words import AngelJob
from flambeau.config import CodeRef, DataRef, DatasetData, FileData
from flambeau.data import StreamedSource, open_source
from flambeau.data.arrow_columns import to_columns
from flambeau.data.jagged import Jagged
from flambeau.errors import ConfigError


def data_format(job: AngelJob, contract: Contract) -> str:
    """The format that a job names, or that its model needs."""
    return job.data_format or ("libffm" if contract.takes_fields else "libsvm")


def train_and_held_out(job: AngelJob, form: str) -> tuple[DataRef, DataRef | None]:
    """The data to train on, and what to evaluate on, if anything."""
    if job.validate_input:
        return files(job.train_input, form), files(job.validate_input, form)
    if not job.test_ratio:
        return files(job.train_input, form), None
    return _part(job, form, held_out=False), _part(job, form, held_out=True)


def files(path: str, form: str) -> FileData:
    """All rows of some files."""
    return FileData(path=path, format=form)


def open_part(path: str, form: str, ratio: float, *, held_out: bool, seed: int) -> StreamedSource:
    """The rows of some files that are held out, or the others."""
    return Split(open_files(path, form), ratio, held_out=held_out, seed=seed)


def open_files(path: str, form: str) -> StreamedSource:
    """The source of some files."""

    def no_code(ref: CodeRef) -> object:
        raise AssertionError(ref.name)

    source = open_source(files(path, form), no_code)
    assert isinstance(source, StreamedSource)
    return source


def check_rows(source: StreamedSource, input_dim: int) -> int:
    """Look through all rows for ids that the model has no room for; how many rows there are."""
    for shard in source.shards():
        for records in source.read(shard, [COLUMN]):
            column = to_columns(records, salts={COLUMN: COLUMN})[COLUMN]
            ids = column.ids if isinstance(column, Jagged) else torch.as_tensor(column).reshape(-1)
            check_ids(ids, input_dim)
    rows = sum(shard.rows for shard in source.shards())
    if not rows:
        raise ConfigError("the data has no rows")
    return rows


def _part(job: AngelJob, form: str, *, held_out: bool) -> DatasetData:
    args = {
        "path": job.train_input,
        "form": form,
        "ratio": job.test_ratio,
        "held_out": held_out,
        "seed": job.seed,
    }
    return DatasetData(code=CodeRef(path=f"{__name__}:{open_part.__name__}", args=args, call=True))
