"""`actionType:predict`, which writes a line `target<TAB>score` for each row."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from torch import Tensor

from flambeau.checkpoint.durable import TEMPORARY
from flambeau.checkpoint.os_errors import named, require_writable
from flambeau.compat.angel import rows
from flambeau.compat.angel.losses import LABEL
from flambeau.compat.angel.model import AngelModel, load
from flambeau.compat.angel.words import AngelJob
from flambeau.config import Binding
from flambeau.data.binding import Binder
from flambeau.data.loader import in_order
from flambeau.embeddings.attach import attach
from flambeau.embeddings.in_process import InProcessTables
from flambeau.embeddings.lookups import Lookups
from flambeau.errors import ConfigError
from flambeau.runs.open_data import shape_of

PART = "part-00000"


def predict(job: AngelJob) -> tuple[Path, int]:
    """Write the scores of all rows of the job's data; return the file and its number of rows."""
    out = Path(job.predict_output_path)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"predictOutputPath:{out} exists already; remove it, or use another name")
    require_writable(out / PART)
    model = load(job.torch_model_path, job.angel_model_input_path or None)
    if not model.begins_trained:
        raise ConfigError(
            f"{job.torch_model_path} has not been trained: give angelModelInputPath, the folder "
            "that a training wrote as angelModelOutputPath, or a file that one wrote as "
            "torchOutputModelPath"
        )
    if job.angel_model_input_path:
        attach(model, Lookups(InProcessTables()))
    out.mkdir(parents=True, exist_ok=True)
    return out / PART, _write(_scores(job, model.eval()), out / PART)


def _scores(job: AngelJob, model: AngelModel) -> Iterator[pa.RecordBatch]:
    """Yield targets and scores of all rows, in order."""
    form = rows.data_format(job, model.contract)
    rows.check_form(job.train_input, form, model.contract)
    source = rows.open_files(rows.files(job, job.train_input, form))
    binder = Binder(Binding(label=LABEL), model.forward, shape_of(source))
    with torch.inference_mode():
        for batch in in_order(source, binder, job.batch_size):
            target = binder.label(batch)
            assert isinstance(target, Tensor)
            positional, named = binder.arguments(batch)
            yield pa.record_batch(
                {
                    "target": pa.array(target.numpy().astype(np.float64)),
                    "score": pa.array(model(*positional, **named).numpy()),
                }
            )


def _write(batches: Iterator[pa.RecordBatch], path: Path) -> int:
    """Write lines to a file that appears when it is complete; return the number of lines."""
    schema = pa.schema({"target": pa.float64(), "score": pa.float32()})
    options = pyarrow.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    partial = path.with_name(f".{path.name}{TEMPORARY}")
    count = 0
    try:
        with (
            named(path),
            pyarrow.csv.CSVWriter(str(partial), schema, write_options=options) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
                count += batch.num_rows
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count
