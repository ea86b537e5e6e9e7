"""Files of a model's graph in four formats, and their loading as functions of tensors."""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import torch
from torch import Tensor, nn
from torch.jit._trace import TracerWarning

from flambeau.checkpoint.os_errors import named
from flambeau.config.settings import nearest
from flambeau.errors import (
    ConfigError,
    DataError,
    MissingDependencyError,
    ModelError,
    UntrustedError,
)
from flambeau.inference.checked_archive import checked_archive

Format = Literal["pt2", "onnx", "torch", "torchscript"]
FILES: dict[str, str] = {
    "pt2": "model.pt2",
    "onnx": "model.onnx",
    "torch": "model.pt",
    "torchscript": "model.ts",
}

#: Formats that are programs rather than data, and what these can do.
PROGRAMS = {
    "torch": "a file of format 'torch' is a pickle, which runs any code",
    "torchscript": "TorchScript is a program, which can write files",
}

Tensors = Sequence[Tensor]
#: Set of the varying dimensions of each input.
Varying = Sequence[frozenset[int]]
Graph = Callable[[Tensors], list[Tensor]]


def require_format(name: str) -> Format:
    """Return the name of a format; raise `ConfigError` if it is unknown."""
    if name not in FILES:
        raise ConfigError(f"format={name!r} is not known; {nearest(name, FILES)}")
    return name  # type: ignore[return-value]


def capture(model: nn.Module, example: Tensors, varying: Varying) -> Any:
    """Return the model as a torch.export program; varying dimensions may have any size."""
    dim = torch.export.Dim
    shapes = tuple(
        {axis: dim.AUTO if axis in axes else dim.STATIC for axis in range(tensor.dim())}
        for tensor, axes in zip(example, varying, strict=True)
    )
    try:
        with _quiet():
            return torch.export.export(
                model, tuple(example), dynamic_shapes={"tensors": shapes}, strict=False
            )
    except (ModelError, KeyboardInterrupt):
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"torch.export cannot follow forward() of the model: {type(error).__name__}: {first}"
        ) from error


def unused_inputs(program: Any) -> set[int]:
    """Return the numbers of inputs on which the result does not depend."""
    inputs = program.graph_signature.user_inputs
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    return {number for number, name in enumerate(inputs) if not nodes[name].users}


def save(
    kind: Format,
    path: Path,
    model: nn.Module,
    program: Any,
    example: Tensors,
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> None:
    """Write the graph of `model`, captured as `program`."""
    with _quiet():
        if kind == "pt2":
            # Examples of inputs would be pickled; without them, the file contains no pickle.
            program._example_inputs = None
            _write(path, lambda file: torch.export.save(program, file))
        elif kind == "torch":
            _write(path, lambda file: torch.save(_plain(program), file))
        elif kind == "torchscript":
            traced: Any = torch.jit.trace(model, tuple(example), check_trace=False)  # type: ignore[no-untyped-call]
            _write(path, lambda file: torch.jit.save(traced, file))
        else:
            _save_onnx(path, program, inputs, outputs)


def _write(path: Path, save: Callable[[BinaryIO], None]) -> None:
    """Write the output of `save` from memory; torch ends the process if the disk is full."""
    buffer = io.BytesIO()
    save(buffer)
    with named(path):
        path.write_bytes(buffer.getbuffer())


def load(kind: Format, path: Path, *, trust: bool = False) -> Graph:
    """Return the graph of a file, as a function of its inputs in order.

    Without `trust`, raise `UntrustedError` for a file that may run code.
    """
    if not path.is_file():
        raise DataError(f"{path} is missing: the export is not complete")
    if kind in PROGRAMS and not trust:
        raise UntrustedError(
            f"{path} is not loaded: {PROGRAMS[kind]}. If you trust the author of this export, load "
            "it with trust=True; or export it with format='pt2' or 'onnx', which are data"
        )
    with _quiet():
        if kind == "onnx":
            return _load_onnx(path, trust)
        if kind == "pt2":
            module = _load_program(path, trust)
        elif kind == "torch":
            module = torch.load(path, weights_only=False)
        else:
            module = torch.jit.load(str(path))  # type: ignore[no-untyped-call]

    def run(tensors: Tensors) -> list[Tensor]:
        return list(module(*tensors))

    return run


def _load_program(path: Path, trust: bool) -> Any:
    file = path if trust else checked_archive(path)
    try:
        # Guards are Python code in the file; the graph itself fails if shapes do not fit.
        return torch.export.load(file).module(check_guards=False)
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{path} cannot be loaded by torch {torch.__version__}: {type(error).__name__}: {first}"
        ) from error


def _plain(program: Any) -> nn.Module:
    """Return the program as a module of plain torch code, which pickle can store."""
    whole = program.module(check_guards=False)
    held = {**dict(whole.named_parameters()), **dict(whole.named_buffers())}
    module = torch.fx.GraphModule(held, whole.graph)
    module.graph.set_codegen(torch.fx.graph.CodeGen())
    module.graph._tracer_cls = None
    module._tracer_cls = None
    module.recompile()
    module.meta.clear()
    return module.eval()


def _save_onnx(path: Path, program: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    try:
        import onnxscript  # noqa: F401 - torch's exporter needs it
    except ImportError as error:
        raise MissingDependencyError(
            "format='onnx' needs onnx and onnxscript: pip install 'flambeau[onnx]'"
        ) from error
    try:
        made: Any = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            input_names=list(inputs),
            output_names=list(outputs),
        )
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise ModelError(f"the model cannot be written as ONNX: {first}") from error
    _rename_steps(made.model.graph, {*inputs, *outputs})
    made.save(str(path))


def _rename_steps(graph: Any, taken: set[str]) -> None:
    """Rename values inside a graph whose names are those of its inputs or outputs."""
    ends = {id(value) for value in (*graph.inputs, *graph.outputs)}
    for node in graph:
        for value in node.outputs:
            if value.name in taken and id(value) not in ends:
                value.name = f"step/{value.name}"


def _load_onnx(path: Path, trust: bool) -> Graph:
    if not trust:
        _require_own_data(path)
    session, names = _onnx_session(path)

    def run(tensors: Tensors) -> list[Tensor]:
        fed = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
        return [torch.from_numpy(found) for found in session.run(None, fed)]

    return run


def _require_own_data(path: Path) -> None:
    """Raise `UntrustedError` for a file that reads numbers from anywhere but a file beside it."""
    try:
        import onnx
        from onnx.external_data_helper import ExternalDataInfo, _get_all_tensors, uses_external_data
    except ImportError as error:
        raise MissingDependencyError(
            f"{path} is checked before it is loaded: pip install onnx; or load it with trust=True"
        ) from error
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise DataError(f"{path} is damaged, or not an ONNX file: {error}") from error
    for tensor in filter(uses_external_data, _get_all_tensors(model)):
        location = ExternalDataInfo(tensor).location
        beside = path.parent / location
        if beside.parent != path.parent or not beside.is_file() or beside.is_symlink():
            raise UntrustedError(
                f"{path} is not loaded: it reads {location!r}, which is no file beside it. "
                "If you trust the author of this export, load it with trust=True"
            )


def _onnx_session(path: Path) -> tuple[Any, list[str]]:
    """Return a session for the file and its input names: onnxruntime's, or else onnx's own."""
    try:
        import onnxruntime  # type: ignore[import-not-found]

        session = onnxruntime.InferenceSession(str(path))
        return session, [each.name for each in session.get_inputs()]
    except ImportError:
        found = None
    try:
        from onnx.reference import ReferenceEvaluator

        found = ReferenceEvaluator(str(path))
    except ImportError as error:
        raise MissingDependencyError(
            "this export is an ONNX file: pip install onnxruntime"
        ) from error
    return found, list(found.input_names)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress torch's messages that its own parts are deprecated or not installed."""
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for category in (DeprecationWarning, FutureWarning, TracerWarning):
                warnings.simplefilter("ignore", category)
            yield
    finally:
        log.setLevel(level)
