"""Requirements of a TorchScript file that is a model for PyTorch on Angel."""

from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from flambeau.config.settings import nearest
from flambeau.errors import ModelError

#: Arguments of `forward_` after the batch, by type.
TYPES = {
    "BIAS_WEIGHT": ("bias", "weights"),
    "BIAS_WEIGHT_EMBEDDING": ("bias", "weights", "embeddings"),
    "BIAS_WEIGHT_EMBEDDING_MATS": ("bias", "weights", "embeddings", "mats"),
    "BIAS_WEIGHT_EMBEDDING_MATS_FIELD": ("bias", "weights", "embeddings", "mats", "fields"),
}
BATCH = ("batch_size", "index", "feats", "values")
METHODS = ("forward", "forward_", "loss", "get_type")
#: Type of Angel's MMoE and ESMM.
SEVERAL_TASKS = "EMBEDDINGS_MATS"


@final
@dataclass(frozen=True)
class Contract:
    """Properties of a model. `embedding_dim` and `n_fields` are 0 if it has none."""

    kind: str
    input_dim: int
    embedding_dim: int
    n_fields: int

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments of `forward_` after the batch."""
        return TYPES[self.kind]

    @property
    def takes_fields(self) -> bool:
        """Whether it needs the field of each id."""
        return "fields" in self.arguments


def check(scripted: Any, where: str) -> Contract:
    """Return the contract that a scripted module follows.

    Raise `ModelError`, which names `where` (the file), if it follows none.
    """
    for name in METHODS:
        if not _is_method(scripted, name):
            raise ModelError(f"{where} has no method {name}(): {_MAKE}")
    kind = _type(scripted, where)
    arguments = TYPES[kind]
    _check_arity(scripted, "forward_", (*BATCH, *arguments), where)
    fields = [name for name in arguments if name == "fields"]
    _check_arity(scripted, "forward", (*BATCH, *fields), where)
    _check_arity(scripted, "loss", ("output", "targets"), where)
    has_embedding = "embeddings" in arguments
    contract = Contract(
        kind,
        _number(scripted, "input_dim", where),
        _number(scripted, "embedding_dim", where) if has_embedding else 0,
        int(getattr(scripted, "n_fields", 0) or 0),
    )
    _check_tensors(scripted, contract, where)
    _refuse_strays(scripted, where)
    return contract


#: Advice for models that Flambeau itself provides.
REPLACED = (
    "rows of Angel's MMoE and ESMM have several labels, which 'flambeau angel' does not train. "
    "Flambeau's own models 'mmoe' and 'esmm' replace them (see the guide, "
    "sequences-and-retrieval.md)"
)
_MAKE = (
    "a model of Angel's has forward, forward_, loss and get_type (see the guide, angel.md); "
    "'flambeau angel make' writes such files"
)


def _is_method(scripted: Any, name: str) -> bool:
    return hasattr(getattr(scripted, name, None), "schema")


def _type(scripted: Any, where: str) -> str:
    kind = scripted.get_type()
    if str(kind).startswith(SEVERAL_TASKS):
        raise ModelError(f"{where} is of type {kind}: {REPLACED}")
    if kind not in TYPES:
        raise ModelError(f"{where}: get_type() gives {kind!r}; {nearest(str(kind), TYPES)}")
    return str(kind)


def _check_arity(scripted: Any, method: str, expected: tuple[str, ...], where: str) -> None:
    """Check for the expected arguments; further arguments must have defaults."""
    given = getattr(scripted, method).schema.arguments[1:]
    more = given[len(expected) :]
    if len(given) < len(expected) or not all(each.has_default_value() for each in more):
        kind, names = scripted.get_type(), ", ".join(each.name for each in given)
        raise ModelError(
            f"{where}: {method}({names}) takes {len(given)} arguments; for type {kind} it must be "
            f"{method}({', '.join(expected)}), and further arguments need defaults"
        )


def _number(scripted: Any, name: str, where: str) -> int:
    value = getattr(scripted, name, None)
    if not isinstance(value, int):
        raise ModelError(f"{where} has no attribute {name} (a whole number); set it in __init__")
    if value < 1:
        raise ModelError(f"{where}: {name}={value}; it must be 1 or more")
    return value


def _check_tensors(scripted: Any, contract: Contract, where: str) -> None:
    widths = {"weights": 1}
    if contract.embedding_dim:
        widths["embedding"] = contract.embedding_dim
    for name, width in widths.items():
        tensor = _tensor(scripted, name, where)
        if tensor.dim() != 2 or tensor.shape[1] != width:
            raise ModelError(
                f"{where}: {name} has shape {list(tensor.shape)}; it must be [any, {width}]"
            )
    _tensor(scripted, "bias", where)
    if "mats" in contract.arguments:
        mats = getattr(scripted, "mats", None)
        if not isinstance(mats, list) or not all(isinstance(mat, Tensor) for mat in mats):
            raise ModelError(f"{where} has no attribute mats, a list of tensors")


def _tensor(scripted: Any, name: str, where: str) -> Tensor:
    tensor = getattr(scripted, name, None)
    if not isinstance(tensor, Tensor):
        raise ModelError(f"{where} has no parameter {name}")
    return tensor


def _refuse_strays(scripted: Any, where: str) -> None:
    known = ("weights", "embedding", "bias")
    for name, parameter in scripted.named_parameters():
        if name not in known and parameter.requires_grad:
            raise ModelError(
                f"{where}: the parameter {name} is not passed to forward_, so it would not be "
                "trained; put it into mats, or freeze it with requires_grad_(False)"
            )
