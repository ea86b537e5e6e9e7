"""Training jobs of `flambeau criteo`, as values of a job file."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from flambeau.config.job_file import JobFile
from flambeau.config.model_names import FIELD_NAMES
from flambeau.config.overrides import override
from flambeau.errors import ConfigError

FIELDS, NUMBERS = 26, 13
IDS, DENSE = f"C1:C{FIELDS}", f"I1:I{NUMBERS}"

#: Values of all jobs.
_ALL: dict[str, Any] = {
    "args": {"fields": FIELDS, "dense": NUMBERS},
    "inputs": {"ids": IDS, "dense": DENSE},
    "label": "label",
    "label_map": {-1: 0, 0: 0, 1: 1},
    "keys": ["label"],  # beside predictions
    "loss": "bce",
    "metrics": ["auc", "accuracy", "logloss"],
    "optimizer": {"name": "adam", "lr": 1e-3},
    "table_optimizer": {"name": "adagrad", "lr": 0.02},
    "batch_size": 2048,
    "strategy": {"hybrid": {}},
    "checkpoints": {"best": "auc", "keep": 2},
    "observe": {"mlperf_log": True},
}

#: Values of single models. `dlrm` is the reference at the size that is used for Kaggle's logs,
#: `dlrm_small` the one that Intel's kit trains, with its optimizers and its large batch.
_ONE: dict[str, dict[str, Any]] = {
    "dlrm": {
        "model": "dlrm",
        "args": {"embedding_dim": 16, "bottom": [512, 256, 64], "top": [512, 256]},
    },
    "dlrm_small": {
        "model": "dlrm",
        "args": {"embedding_dim": 64, "bottom": [128], "top": [256, 128]},
        "optimizer": {"name": "lamb", "lr": 30.0},
        "table_optimizer": {"name": "sgd", "lr": 16.0},
        "schedule": {"kind": "polynomial", "warmup": 4000},
        "batch_size": 131_072,
        "compute": {"precision": "bf16"},
    },
}

#: Learning rate of Adam for replicated fields. With that of the other weights, they learn more
#: slowly than rows of the table, whose Adagrad makes larger steps; see the guide for measurements.
_SMALL_FIELDS = {"*.dense.weight": {"lr": 0.02}}

#: Fields with fewer values than this are replicated, if the sizes of the fields are known.
DENSE_BELOW = 1000


def replicates(model: str) -> bool:
    """Return whether a model accepts the sizes of its fields and can replicate the small ones."""
    return model in FIELD_NAMES or model in _ONE


def make_job(
    model: str,
    features: Mapping[str, Any],
    run_dir: Path,
    cluster: Mapping[str, Any],
    overrides: Sequence[str],
    sizes: Mapping[str, int],
) -> JobFile:
    """Return the job that trains a model; the keys in `features` (the data) replace defaults.

    `sizes` has the number of ids of each field; it is empty if they are unknown.
    """
    own = deepcopy(_ONE.get(model, {"model": model}))
    values: dict[str, Any] = {
        **deepcopy(_ALL),
        **own,
        "cluster": dict(cluster),
        "run_dir": str(run_dir),
    }
    values["args"] = {**_ALL["args"], **own.get("args", {}), **features.get("args", {})}
    values |= {key: value for key, value in features.items() if key != "args"}
    if any(text.partition("=")[0] == "run_dir" for text in overrides):
        raise ConfigError("run_dir: the run is in the folder of --out")
    override(values, overrides)
    optimizer, small = values.get("optimizer"), small_fields(values.get("args") or {}, sizes)
    if small and isinstance(optimizer, dict) and optimizer.get("name") == "adam":
        values["optimizer"] = {"groups": _SMALL_FIELDS, **optimizer}
    return JobFile.parse(values)


def small_fields(args: Mapping[str, Any], sizes: Mapping[str, int]) -> list[str]:
    """Return the fields that a model with these arguments replicates."""
    below = args.get("dense_below")
    return [name for name, size in sizes.items() if isinstance(below, int) and size < below]
