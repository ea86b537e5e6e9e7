"""Transfer of the user's own code to the workers: by import path, or by value."""

import importlib
import inspect
import json
import pickle
import sys
from collections.abc import Mapping
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import cloudpickle

from flambeau.checkpoint.durable import atomic_file, write_atomically
from flambeau.config import CodeRef
from flambeau.config.settings import nearest
from flambeau.errors import ModelError

INDEX = "index.json"
#: Current module of recommender layers; older models saved by value name another one.
_LAYERS = "flambeau.models.ctr.layers"


def importable_path(obj: Any) -> str | None:
    """Return `package.module:name` if importing that gives the very same object, else None."""
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return None
    loaded = sys.modules.get(module)
    # Without a spec, or as a script, it was not imported by its name and cannot be on a worker.
    if module in ("__main__", "__mp_main__") or getattr(loaded, "__spec__", None) is None:
        return None
    found = reduce(lambda owner, part: getattr(owner, part, None), name.split("."), loaded)
    return f"{module}:{name}" if found is obj else None


class Packer:
    """Collector of the user's code in memory, written to files only when the run may start."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._index: dict[str, dict[str, str]] = {}

    def add(self, obj: Any, name: str) -> CodeRef:
        """Add an object; return a reference: its import path, or the file of its value.

        `name` must be different for different objects.
        """
        path = importable_path(obj)
        if path is not None:
            self._index[name] = {"by": "path", "path": path}
            return CodeRef(path=path)
        file = f"{quote(name, safe='')}.pkl"
        self._files[file] = _by_value(obj, name)
        kind = f"{type(obj).__module__}.{type(obj).__qualname__}"
        self._index[name] = {"by": "value", "value": file, "type": kind}
        return CodeRef(value=file)

    def type_of(self, ref: CodeRef) -> str:
        """Return the class of an object added by value, or the import path of another one."""
        by_value = (entry for entry in self._index.values() if entry["by"] == "value")
        types = (entry["type"] for entry in by_value if entry["value"] == ref.value)
        return ref.path or next(types, "")

    def write(self, directory: Path) -> None:
        """Write objects added by value, readable by their owner only, and `index.json`."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, data in self._files.items():
            with atomic_file(directory / name, mode=0o600) as file:
                file.write(data)
        write_atomically(directory / INDEX, json.dumps(self._index, indent=1).encode())


def pack(obj: Any, directory: Path, name: str) -> CodeRef:
    """Collect and write one object; return its reference."""
    packer = Packer()
    ref = packer.add(obj, name)
    packer.write(directory)
    return ref


def load(ref: CodeRef, directory: Path) -> Any:
    """Load the object of a reference; with `ref.call`, return the result of calling it."""
    found = _load_by_path(ref.path) if ref.path else _load_by_value(directory / ref.name)
    return _call(found, ref) if ref.call else found


def _by_value(obj: Any, name: str) -> bytes:
    try:
        return bytes(cloudpickle.dumps(obj))
    except Exception as error:
        raise ModelError(
            f"{_culprit(obj, name)} cannot be sent to the workers: {error}. Make it in the worker "
            "(pass a class or function instead), or put the code in a module they can import"
        ) from error


def _culprit(obj: Any, name: str, outer: tuple[int, ...] = ()) -> str:
    """Return the path of the innermost part that cannot be pickled."""
    inside = (*outer, id(obj))
    for key, part in _parts(obj).items():
        if id(part) not in inside and not _is_picklable(part):
            return _culprit(part, f"{name}.{key}", inside)
    return f"{name} ({type(obj).__qualname__})"


def _parts(obj: Any) -> Mapping[Any, Any]:
    if isinstance(obj, Mapping):
        return obj
    if isinstance(obj, list | tuple):
        return dict(enumerate(obj))
    if inspect.isfunction(obj):
        closure = inspect.getclosurevars(obj)
        return {**closure.globals, **closure.nonlocals}
    return dict(getattr(obj, "__dict__", {}))


def _is_picklable(obj: Any) -> bool:
    try:
        cloudpickle.dumps(obj)
    except Exception:  # noqa: BLE001 - pickling runs any code; the first error is reported
        return False
    return True


def _load_by_path(path: str) -> Any:
    module_name, _, names = path.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ModelError(
            f"cannot import {path}: there is no module {error.name!r}; install it, or start from "
            "the directory that holds it"
        ) from error
    except Exception as error:
        raise ModelError(
            f"cannot import {path}: {type(error).__name__} in {module_name}: {error}"
        ) from error
    for name in names.split("."):
        if not hasattr(found, name):
            owner = getattr(found, "__name__", names)
            hint = nearest(name, (known for known in dir(found) if known[0] != "_"))
            raise ModelError(f"cannot import {path}: {owner} has no {name!r}; {hint}")
        found = getattr(found, name)
    return found


def _load_by_value(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return _Unpickler(file).load()
    except FileNotFoundError:
        raise ModelError(f"{path} is missing: the run directory is incomplete") from None
    except Exception as error:
        raise ModelError(
            f"cannot load {path}: {type(error).__name__}: {error}; it needs the same modules and "
            "versions as when it was saved"
        ) from error


class _Unpickler(pickle.Unpickler):
    """Unpickler that also finds classes of this package that have moved since they were saved."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the class or function that a pickle names."""
        package, _, last = module.rpartition(".")
        if package == "flambeau.models.ctr" and find_spec(module) is None:
            module = f"{_LAYERS}.{last}"
        return super().find_class(module, name)


def _call(found: Any, ref: CodeRef) -> Any:
    try:
        return found(**ref.args)
    except TypeError as error:
        raise ModelError(f"{ref.name}: {error}; its signature is {_signature(found)}") from error


def _signature(found: Any) -> str:
    try:
        return f"{getattr(found, '__name__', 'it')}{inspect.signature(found)}"
    except (TypeError, ValueError):
        return "unknown"
