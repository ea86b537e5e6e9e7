"""A model of PyTorch on Angel as a module whose sparse weights are tables."""

from pathlib import Path
from typing import Any, Self, final

import torch
from torch import Tensor, nn
from torch.jit._fuser import optimized_execution

from flambeau.compat.angel import saved, torchscript
from flambeau.compat.angel.contract import Contract, check
from flambeau.compat.angel.losses import ExportedLoss
from flambeau.compat.angel.torchscript import Scripted
from flambeau.config.plural import number_of
from flambeau.config.tables import Initializer, TableSpec
from flambeau.data import jagged
from flambeau.data.jagged import Jagged
from flambeau.embeddings.external import ExternalEmbedding
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.errors import DataError, ModelError

COLUMN = "features"
_FIRST = {"weights": Initializer(kind="constant"), "embedding": Initializer()}

Table = SparseEmbedding | ExternalEmbedding


@final
class AngelModel(nn.Module):
    """Module that calls `forward_` of a scripted module with rows of its tables.

    The tables are `weights` and `embedding`; `bias` and `mats` are parameters. Its input is the
    column `features`, bags of ids (with values and fields). Its output is that of `forward_`, a
    probability for each row. `loss` is the scripted module's own, for `fit`. `begins_trained` is
    True if the file, or the tables that were given, have trained rows.
    """

    def __init__(self, scripted: Any, where: str, tables: Path | None = None) -> None:
        super().__init__()
        self.contract: Contract = check(scripted, where)
        self._where = where
        names = ["weights", *(["embedding"] if self.contract.embedding_dim else [])]
        made = {name: _table(scripted, name, self.contract, tables) for name in names}
        self.begins_trained = tables is not None or isinstance(made["weights"], ExternalEmbedding)
        self.weights = made["weights"]
        self.embedding = made.get("embedding")
        self.bias = _parameter(scripted.bias)
        has_mats = "mats" in self.contract.arguments
        self.mats = nn.ParameterList(_parameter(mat) for mat in (scripted.mats if has_mats else []))
        if tables is not None:
            saved.load_dense(self.dense(), tables)
        # The module's own rows are not used, and need not be sent to workers.
        for name in names:
            setattr(scripted, name, nn.Parameter(getattr(scripted, name)[:1].clone()))
        self._scripted = Scripted(scripted)

    @property
    def loss(self) -> ExportedLoss:
        """The loss in the model file, for `fit`."""
        return ExportedLoss(self._scripted)

    def dense(self) -> dict[str, Tensor]:
        """Return the parameters by their names in files: `bias`, `mats.0`, `mats.1`, ..."""
        return {"bias": self.bias, **{f"mats.{i}": mat for i, mat in enumerate(self.mats)}}

    def train(self, mode: bool = True) -> Self:
        """Set the mode, also of the scripted module; see `nn.Module`."""
        if hasattr(self, "_scripted"):
            self._scripted.module.train(mode)
        return super().train(mode)

    def forward(self, features: Jagged | Tensor) -> Tensor:
        """Return the probability of each row [rows]."""
        bags = features if isinstance(features, Jagged) else jagged.from_rows(features)
        self._check_batch(bags)
        values = torch.ones(len(bags.ids)) if bags.values is None else bags.values
        given: list[Any] = [len(bags), bags.rows, bags.ids, values, self.bias]
        given.append(self.weights(bags.ids))
        if self.embedding is not None:
            given.append(self.embedding(bags.ids))
        if "mats" in self.contract.arguments:
            given.append(list(self.mats))
        if self.contract.takes_fields:
            given.append(bags.fields)
        return self._output(given, bags)

    def _output(self, given: list[Any], bags: Jagged) -> Tensor:
        try:
            # Batches differ in shape; specialising the code for each one costs more than it gains.
            with optimized_execution(False):
                output: Tensor = self._scripted.module.forward_(*given)
        except (RuntimeError, torch.jit.Error) as error:
            raise self._explained(error, bags) from error
        if output.numel() != len(bags):
            raise ModelError(
                f"{self._where}: forward_ gave {list(output.shape)} for {len(bags)} rows; it must "
                "give one probability for each"
            )
        return output.reshape(-1)

    def _check_batch(self, bags: Jagged) -> None:
        if self.contract.takes_fields and bags.fields is None:
            raise DataError(
                f"{self._where} needs the field of each id, and the data has none: use libffm"
            )
        check_ids(bags.ids, self.contract.input_dim)

    def _explained(self, error: Exception, bags: Jagged) -> Exception:
        fields, lengths = self.contract.n_fields, bags.lengths
        odd = (lengths != fields).nonzero()
        if fields and len(odd) and not self.contract.takes_fields:
            row = int(odd[0])
            return DataError(
                f"{self._where} has n_fields={fields}, but row {row} of the batch has "
                f"{number_of(int(lengths[row]), 'id')}; its type needs one id for each field in "
                "every row"
            )
        reason = str(error).strip().splitlines()[-1].removeprefix("builtins.")
        return ModelError(f"{self._where}: forward_ failed: {reason}")


def load(path: str | Path, tables: str | Path | None = None) -> AngelModel:
    """Return the model of a TorchScript file; with `tables`, initialized from a job's tables."""
    folder = None if tables is None else Path(tables).resolve()
    return AngelModel(torchscript.read(path), Path(path).name, folder)


def check_ids(ids: Tensor, input_dim: int) -> None:
    """Raise `DataError` for ids for which the exported model would have no row."""
    if not len(ids):
        return
    low, high = (int(number) for number in ids.aminmax())
    if low < 0 or high >= input_dim:
        wrong = low if low < 0 else high
        needed = "" if low < 0 else f", for instance with --input_dim {high + 1}"
        raise DataError(
            f"id {wrong} (counted from 0) does not fit a model with input_dim={input_dim}, which "
            f"has ids 0 to {input_dim - 1}; make the model again{needed}"
        )


def _parameter(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.detach().clone().float())


def _table(scripted: Any, name: str, contract: Contract, tables: Path | None) -> Table:
    """Make the table of a parameter, initialized from `tables` or from the parameter's rows."""
    rows = getattr(scripted, name).detach().float()
    init = None if tables is None else str(saved.table_file(tables, name))
    spec = TableSpec(name, rows.shape[1], initializer=_FIRST[name], init=init)
    if init is None and _is_trained(scripted, contract):
        original = nn.Embedding(len(rows), rows.shape[1], _weight=rows.clone())
        table = ExternalEmbedding(original, spec)
        table.rows.prefetch = COLUMN
        return table
    return SparseEmbedding(spec, prefetch=COLUMN)


def _is_trained(scripted: Any, contract: Contract) -> bool:
    """Return whether the parameters are rows for all ids, not placeholders of a new model."""
    rows = scripted.weights.detach()
    return len(rows) == contract.input_dim and bool((rows != rows[0]).any())
