"""The run directory, and the checkpoints in it.

A checkpoint is committed by its manifest, which is written last; a directory without a manifest is
ignored. Nothing exported here loads torch: import what handles tensors from its own module
(`store`, `saver`, `tree`, `weights`).
"""

from flambeau.checkpoint.manifest import Manifest
from flambeau.checkpoint.references import (
    best,
    checkpoints,
    latest,
    mark_best,
    parse_reference,
    repair_pointers,
    resolve,
)
from flambeau.checkpoint.retention import lease, prune
from flambeau.checkpoint.run_directory import RunDirectory

__all__ = [
    "Manifest",
    "RunDirectory",
    "best",
    "checkpoints",
    "latest",
    "lease",
    "mark_best",
    "parse_reference",
    "prune",
    "repair_pointers",
    "resolve",
]
