"""Moving the embeddings of an existing model into tables."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from flambeau.config.tables import TableSpec
from flambeau.embeddings.external import ExternalEmbedding, ExternalEmbeddingBag
from flambeau.errors import ModelError

_DTYPES = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
}

Embedding = nn.Embedding | nn.EmbeddingBag
External = ExternalEmbedding | ExternalEmbeddingBag


def externalize(model: nn.Module, min_rows: int = 1, **spec_fields: Any) -> nn.Module:
    """Replace the embeddings of a model with at least `min_rows` rows by tables; return the model.

    A table is named by its module's path and starts with its weights; `spec_fields` (an
    `optimizer=`, for example) are passed to every `TableSpec`. Frozen weights become a table that
    does not learn. If a table cannot replace an embedding exactly, it raises `ModelError` and
    changes nothing.
    """
    shared = _shared_storages(model)
    replacements: dict[Embedding, External] = {}
    places = list(_places(model, min_rows))
    for path, _, _, module in places:
        if module not in replacements:
            _refuse(path, module, shared)
            replacements[module] = _external(path, module, spec_fields)
    for _, parent, name, module in places:
        setattr(parent, name, replacements[module].train(module.training))
    return model


def _places(model: nn.Module, min_rows: int) -> Iterator[tuple[str, nn.Module, str, Embedding]]:
    """Yield path, parent, name in the parent, and module; a module used twice is yielded twice."""
    if isinstance(model, Embedding):
        raise ModelError("the model is itself an embedding; put it into a module to externalize it")
    for prefix, parent in model.named_modules():
        for name, module in parent._modules.items():
            if isinstance(module, Embedding) and module.num_embeddings >= min_rows:
                yield f"{prefix}.{name}".lstrip("."), parent, name, module


def _external(path: str, module: Embedding, spec_fields: dict[str, Any]) -> External:
    learns = module.weight.requires_grad
    fields = {"dtype": _DTYPES[module.weight.dtype], "trainable": learns, **spec_fields}
    if not fields["trainable"]:
        fields.pop("optimizer", None)
    spec = TableSpec(path, module.embedding_dim, **fields)
    if isinstance(module, nn.Embedding):
        return ExternalEmbedding(module, spec)
    return ExternalEmbeddingBag(module, spec)


def _refuse(path: str, module: Embedding, shared: set[int]) -> None:
    """Raise `ModelError` if a table would not give the same results or gradients as the module."""
    reasons = {
        "its class has a forward of its own": not _is_plain(module),
        "its weight is parametrized": is_parametrized(module),
        "it has hooks": bool(module._forward_hooks or module._forward_pre_hooks),
        "its weight is used elsewhere in the model": _storage(module.weight) in shared,
        "max_norm changes rows when they are read": module.max_norm is not None,
        "scale_grad_by_freq is not supported": module.scale_grad_by_freq,
        "padding_idx of bags is not supported": isinstance(module, nn.EmbeddingBag)
        and module.padding_idx is not None,
        f"its weight is {module.weight.dtype}": module.weight.dtype not in _DTYPES,
    }
    for reason, holds in reasons.items():
        if holds:
            raise ModelError(
                f"'{path}' cannot become a table: {reason}; change it, or leave it out with "
                f"min_rows above {module.num_embeddings}"
            )


def _is_plain(module: Embedding) -> bool:
    return type(module).forward in (nn.Embedding.forward, nn.EmbeddingBag.forward)


def _shared_storages(model: nn.Module) -> set[int]:
    """Return the memory that several parameters share, or several modules."""
    counts = Counter(
        _storage(parameter)
        for module in model.modules()
        for parameter in module._parameters.values()
        if parameter is not None
    )
    return {storage for storage, count in counts.items() if count > 1}


def _storage(weight: torch.Tensor) -> int:
    return weight.untyped_storage().data_ptr()
