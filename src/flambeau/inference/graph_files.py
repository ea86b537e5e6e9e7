"""A model's graph as a file, in one of four formats, and back as a function of tensors."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.jit._trace import TracerWarning

from flambeau.config.settings import nearest
from flambeau.errors import ConfigError, DataError, MissingDependencyError, ModelError

Format = Literal["pt2", "onnx", "torch", "torchscript"]
FILES: dict[str, str] = {
    "pt2": "model.pt2",
    "onnx": "model.onnx",
    "torch": "model.pt",
    "torchscript": "model.ts",
}

Tensors = Sequence[Tensor]
#: Which dimensions of each input vary.
Varying = Sequence[frozenset[int]]
Graph = Callable[[Tensors], list[Tensor]]


def require_format(name: str) -> Format:
    """The name of a format, if it is one."""
    if name not in FILES:
        raise ConfigError(f"format={name!r} is not known; {nearest(name, FILES)}")
    return name  # type: ignore[return-value]


def capture(model: nn.Module, example: Tensors, varying: Varying) -> Any:
    """The model as a program of torch.export; varying dimensions may have any size."""
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
    """Which inputs the result does not depend on."""
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
            torch.export.save(program, path)
        elif kind == "torch":
            torch.save(_plain(program), path)
        elif kind == "torchscript":
            traced: Any = torch.jit.trace(model, tuple(example), check_trace=False)  # type: ignore[no-untyped-call]
            torch.jit.save(traced, str(path))
        else:
            _save_onnx(path, program, inputs, outputs)


def load(kind: Format, path: Path) -> Graph:
    """The graph of a file, as a function of its inputs in order."""
    if not path.is_file():
        raise DataError(f"{path} is missing: the export is not complete")
    with _quiet():
        if kind == "onnx":
            return _load_onnx(path)
        if kind == "pt2":
            module: Any = torch.export.load(path).module()
        elif kind == "torch":
            module = torch.load(path, weights_only=False)
        else:
            module = torch.jit.load(str(path))  # type: ignore[no-untyped-call]

    def run(tensors: Tensors) -> list[Tensor]:
        return list(module(*tensors))

    return run


def _plain(program: Any) -> nn.Module:
    """The program as a module of plain torch code, which pickle can hold."""
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
    made.save(str(path))


def _load_onnx(path: Path) -> Graph:
    session, names = _onnx_session(path)

    def run(tensors: Tensors) -> list[Tensor]:
        fed = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
        return [torch.from_numpy(found) for found in session.run(None, fed)]

    return run


def _onnx_session(path: Path) -> tuple[Any, list[str]]:
    """Whatever runs ONNX here: the runtime, or else the slow evaluator that onnx brings."""
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
    """Without what torch says of its own parts: that they are deprecated, or not installed."""
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
