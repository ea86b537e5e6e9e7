"""Folder of a trained model: its description, its code, its weights and its tables.

  model.json                       the model's code, its parameters and its outputs
  code/                            the network: an import path, or the code by value
  checkpoints/step-N/              dense.safetensors, tables, manifest.json
  summary.json                     results of the training, if it was trained here

Its checkpoint has the form of those of a run, so that `init_from=` can start from it.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from flambeau.checkpoint import Manifest, RunDirectory, resolve, user_code
from flambeau.checkpoint.durable import write_atomically
from flambeau.checkpoint.manifest import MANIFEST, FileEntry, TableEntry
from flambeau.checkpoint.store import (
    Others,
    TrainingState,
    make_room,
    read_checkpoint,
    take_snapshot,
    write_snapshot,
)
from flambeau.checkpoint.user_code import Packer
from flambeau.checkpoint.weights import load_all_weights
from flambeau.config import Binding, CodeRef, JobSettings
from flambeau.config.settings import Settings
from flambeau.embeddings.attach import has_tables
from flambeau.errors import ConfigError, DataError, ModelError
from flambeau.inference.calibration import calibrate_in_use
from flambeau.inference.export_description import Parameter, described_parameters
from flambeau.runs import import_folders
from flambeau.runs.trained_run import attach_tables
from flambeau.spark.modules import Network, as_module, shaped
from flambeau.spark.outputs import Output
from flambeau.version import __version__

MODEL = "model.json"
SUMMARY = "summary.json"
VERSION = 1
#: Step of weights that were trained elsewhere; at step 0 nothing would have been trained.
_TRAINED = 1


class Described(Settings):
    """Content of `model.json`. `columns` and `outputs` are known after some rows have been scored.

    `binding` has the salts, crosses and fill values that the model was trained with. `calibration`
    has the loss and the share of negatives, if not all of them were trained on.
    """

    version: int = VERSION
    flambeau: str = __version__
    torch: str = torch.__version__
    model: CodeRef
    by_value: bool
    shape: tuple[int, ...] | None
    parameters: tuple[Parameter, ...]
    binding: Binding = Binding()
    calibration: tuple[str, float] | None = None
    columns: dict[str, str] = {}  # noqa: RUF012 - pydantic copies defaults
    outputs: tuple[Output, ...] | None = None

    def write(self, folder: Path) -> None:
        """Write `model.json`."""
        text = json.dumps(self.model_dump(mode="json"), indent=1)
        write_atomically(folder / MODEL, text.encode())


def write_folder(
    folder: Path,
    network: Network,
    module: nn.Module,
    checkpoint: Path | None = None,
    trained: JobSettings | None = None,
) -> Described:
    """Write a trained model: `module` itself, or the weights and tables of a run's checkpoint.

    `trained` are the run's settings.
    """
    if trained is not None and trained.images is not None:
        raise ConfigError("images= is for files of images; prepare the rows of a DataFrame before")
    folder.mkdir(parents=True)
    packer = Packer()
    described = Described(
        model=network.pack(packer),
        by_value=network.by_value,
        shape=network.shape,
        parameters=described_parameters(module.forward),
        **({} if trained is None else _as_trained(trained)),
    )
    packer.write(folder / "code")
    import_folders.remember(folder / "code")
    if checkpoint is not None:
        _copy_checkpoint(checkpoint, folder)
    elif has_tables(module):
        raise ModelError(
            "the model looks up rows in tables, which are in a run: give the run, "
            "TorchModel.of('runs/name'), instead of its model"
        )
    else:
        _write_checkpoint(folder, _TRAINED, dict(module.state_dict()))
    described.write(folder)
    return described


def _as_trained(settings: JobSettings) -> dict[str, Any]:
    only_training = {"label": None, "weight": None, "group": None, "keys": ()}
    keep = settings.loading.keep_negatives
    return {
        "binding": settings.binding.model_copy(update=only_training),
        "calibration": (settings.loss, keep) if keep < 1.0 else None,
    }


def read_described(folder: Path) -> Described:
    """Read the description in a folder; raise `DataError` if it is missing or unreadable."""
    path = folder / MODEL
    try:
        values = json.loads(path.read_bytes())
        if values.get("version") != VERSION:
            raise DataError(
                f"{path} has version {values.get('version')!r}, and this Flambeau reads {VERSION}"
            )
        return Described.parse(values, str(path))
    except FileNotFoundError:
        raise DataError(f"{folder} holds no model: it has no {MODEL}") from None
    except (OSError, json.JSONDecodeError, ConfigError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def load_module(folder: Path) -> nn.Module:
    """Return the network with its weights and mapped tables, in evaluation mode on the CPU."""
    described = read_described(folder)
    import_folders.use(folder / "code")
    found = user_code.load(described.model, folder / "code")
    module = shaped(as_module(found), described.shape)
    checkpoint = resolve(RunDirectory(folder), "latest")
    load_all_weights(module, read_checkpoint(checkpoint).model)
    attach_tables(module, checkpoint)
    if described.calibration is not None:
        calibrate_in_use(module, *described.calibration)
    return module.eval()


def tell_of_code_by_value(folder: Path, path: str) -> None:
    """Warn the user who loads a model that it contains its own code."""
    if read_described(folder).by_value:
        warnings.warn(
            f"{path}: the model's code is in the saved model itself, since it came from a notebook "
            "or a script and cannot be imported; loading runs it, so load only what you trust",
            stacklevel=2,
        )


def digest(folder: Path) -> str:
    """Return a digest of a folder's content; the manifest has the checksums of its files."""
    checkpoint = resolve(RunDirectory(folder), "latest")
    told = hashlib.sha256()
    for path in [folder / MODEL, checkpoint / MANIFEST, *sorted((folder / "code").iterdir())]:
        told.update(path.name.encode() + path.read_bytes())
    return told.hexdigest()[:32]


def files_of(folder: Path) -> dict[str, Path]:
    """Return all files of a folder, by their relative paths."""
    return {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }


def _write_checkpoint(
    folder: Path,
    step: int,
    weights: Mapping[str, Tensor],
    extra: Any = None,
    others: Others | None = None,
) -> None:
    state = TrainingState(step=step, epoch=0, workers=1, model=dict(weights), extra=extra)
    write_snapshot(RunDirectory(folder), take_snapshot(state), others)


def _copy_checkpoint(source: Path, folder: Path) -> None:
    """Copy a run's weights; with tables, also the tables and the state to resume from them."""
    manifest, state = Manifest.read(source), read_checkpoint(source)
    target = make_room(RunDirectory(folder), manifest.step)

    def tables() -> tuple[dict[str, FileEntry], dict[str, TableEntry]]:
        files: dict[str, FileEntry] = {}
        for name in manifest.files:
            if manifest.tables and name.startswith("server-"):
                _take(source, name, target, files)
        entries = {
            name: TableEntry(
                spec=entry.spec,
                layers=[[_take(source, path, target, files) for path in each] for each in layers],
            )
            for name, entry in manifest.tables.items()
            for layers in [entry.layers]
        }
        return files, entries

    extra = state.extra if manifest.tables else None
    _write_checkpoint(folder, manifest.step, state.model, extra, tables)


def _take(source: Path, path: str, target: Path, files: dict[str, FileEntry]) -> str:
    """Link or copy a file of the checkpoint, or of one it is based on; return its new name."""
    original = source / path
    name = path.removeprefix("../").replace("/", "-")
    try:
        os.link(original, target / name)
    except OSError:  # another file system, or one without links
        shutil.copyfile(original, target / name)
    entry = Manifest.read(original.parent).files.get(original.name)
    if entry is not None:
        files[name] = entry
    return name
