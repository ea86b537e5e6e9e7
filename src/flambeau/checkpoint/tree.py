"""Nested values as JSON and tensors, restored exactly. Pickle is never used."""

import base64
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from flambeau.errors import CheckpointError

Json = Any


def flatten(tree: Any, where: str = "state") -> tuple[Json, dict[str, Tensor]]:
    """Return the tree as JSON values, and its tensors by name; the tensors are not copied.

    A tree consists of dicts (keys: str or int), lists, tuples, tensors, numpy scalars, numbers,
    text, bytes and None. `where` is the prefix of tensor names and of paths in messages.
    """
    tensors: dict[str, Tensor] = {}
    return _encode(tree, where, tensors), tensors


def unflatten(node: Json, tensors: Mapping[str, Tensor]) -> Any:
    """Return the tree that was flattened, with the given tensors inserted."""
    if isinstance(node, list):
        return [unflatten(item, tensors) for item in node]
    if not isinstance(node, dict):
        return node
    ((kind, content),) = node.items()
    if kind not in _DECODERS:
        raise CheckpointError(f"unknown kind of value {kind!r}; use the Flambeau that wrote it")
    return _DECODERS[kind](content, tensors)


def _encode(value: Any, path: str, tensors: dict[str, Tensor]) -> Json:
    """Encode a value: None, bool, int, str, finite floats and lists directly, all others tagged."""
    if value is None or type(value) in (bool, int, str):
        return value
    # The exact type: a subclass (an enum, a named tuple) would be restored as something else.
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value, path, tensors)
    if isinstance(value, np.generic) and value.dtype.kind not in "OV":
        return {"numpy": [value.dtype.str, value.tobytes().hex()]}
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise CheckpointError(
        f"{path} cannot be saved in a checkpoint: it is a {kind}; use dicts, lists, tuples, "
        "tensors, numbers, text, bytes and None"
    )


def _encode_float(value: float, path: str, tensors: dict[str, Tensor]) -> Json:
    return value if math.isfinite(value) else {"float": repr(value)}


def _encode_bytes(value: bytes, path: str, tensors: dict[str, Tensor]) -> Json:
    return {"bytes": base64.b64encode(value).decode()}


def _encode_tensor(value: Tensor, path: str, tensors: dict[str, Tensor]) -> Json:
    # The paths of d[0] and d["0"] are the same.
    while path in tensors:
        path += "'"
    tensors[path] = value.detach()
    return {"tensor": path}


def _encode_list(value: list[Any], path: str, tensors: dict[str, Tensor]) -> Json:
    return [_encode(item, f"{path}.{index}", tensors) for index, item in enumerate(value)]


def _encode_tuple(value: tuple[Any, ...], path: str, tensors: dict[str, Tensor]) -> Json:
    return {"tuple": _encode_list(list(value), path, tensors)}


def _encode_dict(value: dict[Any, Any], path: str, tensors: dict[str, Tensor]) -> Json:
    for key in value:
        if type(key) not in (str, int):
            raise CheckpointError(
                f"{path} cannot be saved in a checkpoint: its key {key!r} is neither str nor int"
            )
    items = [[key, _encode(item, f"{path}.{key}", tensors)] for key, item in value.items()]
    return {"counter" if type(value) is Counter else "dict": items}


_ENCODERS: dict[type, Callable[[Any, str, dict[str, Tensor]], Json]] = {
    float: _encode_float,
    bytes: _encode_bytes,
    Tensor: _encode_tensor,
    nn.Parameter: _encode_tensor,
    list: _encode_list,
    tuple: _encode_tuple,
    dict: _encode_dict,
    OrderedDict: _encode_dict,
    # Torch schedulers keep their milestones in a Counter.
    Counter: _encode_dict,
}

_DECODERS: dict[str, Callable[[Any, Mapping[str, Tensor]], Any]] = {
    "float": lambda text, _: float(text),
    "bytes": lambda text, _: base64.b64decode(text),
    "numpy": lambda pair, _: np.frombuffer(bytes.fromhex(pair[1]), dtype=pair[0])[0],
    "tensor": lambda name, tensors: tensors[name],
    "tuple": lambda items, tensors: tuple(unflatten(items, tensors)),
    "dict": lambda items, tensors: {key: unflatten(item, tensors) for key, item in items},
    "counter": lambda items, tensors: Counter(dict(items)),
}
