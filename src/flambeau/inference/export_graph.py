"""Capture of a model's graph from an example of its arguments, and checks of the result."""

import hashlib
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from flambeau.config.plural import number_of
from flambeau.data.jagged import Jagged, with_gaps
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.errors import ModelError, UntrustedError
from flambeau.inference import graph_files
from flambeau.inference.arguments import FAULTS, Arguments, Leaf
from flambeau.inference.cut_model import (
    CutModel,
    cut_at_lookups,
    flat_outputs,
    ghosts,
    graph_inputs,
    output_names,
)
from flambeau.inference.export_description import GraphFile, GraphInput
from flambeau.inference.graph_files import Format
from flambeau.inference.inside_tables import MISSING
from flambeau.inference.looking_up import LookUps
from flambeau.inference.lookup_calls import Lookup
from flambeau.inference.lookup_sites import graph_copy, has_dense_fields, replaced

Values = Mapping[str, Leaf]
Where = Literal["none", "inside", "outside"]

#: Rows of the examples: the first one is traced, and all are compared with the model.
EXAMPLE_ROWS = (7, 4, 1)
_TOLERANCE = 1e-5


@final
@dataclass(frozen=True)
class GraphSource:
    """A model with the inputs of its graph; `cut` returns the arguments of a number of rows."""

    model: nn.Module
    arguments: Arguments
    cut: Callable[[int], dict[str, Leaf]]
    lookups: tuple[Lookup, ...]
    look_up: LookUps | None
    inside: Callable[[SparseEmbedding], nn.Module] | None
    exact: bool

    @property
    def where(self) -> Where:
        """Place of the lookups: inside the graph, outside, or none."""
        if self.inside is not None:
            return "inside"
        return "outside" if self.lookups else "none"


def make_graph(source: GraphSource, kind: Format) -> "MadeGraph":
    """Capture the model's graph, without inputs on which it does not depend."""
    values = source.cut(EXAMPLE_ROWS[0])
    cut = _cut_model(source, values)
    program, kept = _captured(source, cut), cut
    unused = graph_files.unused_inputs(program)
    names = [n for number, n in enumerate(cut.names, _count(source)) if number not in unused]
    if len(names) < len(cut.names):
        dropped = {n: values[n] for n in cut.names if n not in names}
        fixed = {**cut.fixed, **dropped, **ghosts(dropped)}
        kept = CutModel(cut.model, cut.arguments, names, fixed, cut.feed)
        program = _captured(source, kept)
    return MadeGraph(source, kind, kept, program)


@final
@dataclass(frozen=True)
class MadeGraph:
    """A captured graph that can be written."""

    source: GraphSource
    kind: Format
    cut: CutModel
    program: Any

    @property
    def digest(self) -> str:
        """Digest that is equal for equal graphs."""
        digest = hashlib.sha256(self.kind.encode())
        for name, tensor in sorted(self.cut.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            whole = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(whole.view(torch.uint8).numpy().tobytes() if whole.numel() else b"")
        return digest.hexdigest()[:32]

    def described(self) -> GraphFile:
        """Return the description for `binding.json`."""
        with torch.inference_mode():
            output = self._model_output(EXAMPLE_ROWS[0])
        names = output_names(output)
        several: Literal["dict", "tuple"] = "dict" if isinstance(output, Mapping) else "tuple"
        return GraphFile(
            format=self.kind,
            file=graph_files.FILES[self.kind],
            digest=self.digest,
            lookups=self.source.where,
            inputs=tuple(self._inputs()),
            outputs=names or ("output",),
            output="tensor" if names is None else several,
        )

    def write(self, folder: Path) -> None:
        """Write the file, and compare its outputs with the model's, for several numbers of rows."""
        described = self.described()
        path = folder / described.file
        names = [each.name for each in described.inputs]
        example = _example(self.source, self.cut, EXAMPLE_ROWS[0])
        graph_files.save(self.kind, path, self.cut, self.program, example, names, described.outputs)
        self._check(_load(self.kind, path))

    def _check(self, graph: graph_files.Graph) -> None:
        for rows in EXAMPLE_ROWS:
            with torch.inference_mode():
                given = _example(self.source, self.cut, rows)
                expected = self.cut(*given)
                _require_same(rows, graph(given), expected)
                if self.source.exact:
                    _require_same(rows, expected, flat_outputs(self._model_output(rows)))

    def _model_output(self, rows: int) -> Any:
        return self._output(self.source.cut(rows))

    def _output(self, values: Values) -> Any:
        positional, named = self.source.arguments.together(values)
        return self.source.model(*positional, **named)

    def _inputs(self) -> list[GraphInput]:
        example = _example(self.source, self.cut, EXAMPLE_ROWS[0])
        labels = [*_lookup_labels(self.source), *({"argument": name} for name in self.cut.names)]
        varying = _varying(self.source, self.cut)
        names: list[str] = []
        for label in labels:
            names.append(_unique(_name(label, self.source.lookups), names))
        return [
            GraphInput(
                name=name,
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(None if n in axes else size for n, size in enumerate(tensor.shape)),
                missing=self._missing(label.get("argument")),
                **label,
            )
            for name, label, tensor, axes in zip(names, labels, example, varying, strict=True)
        ]

    def _missing(self, name: str | None) -> int | None:
        """Return the id that marks a missing id in an argument, if the model accepts one."""
        if name is None:
            return None
        values = self.source.cut(EXAMPLE_ROWS[0])
        ids = values[name]
        if isinstance(ids, Jagged):
            return MISSING[torch.int64]
        if self.source.inside is None and not has_dense_fields(self.source.model):
            return None
        if not isinstance(ids, Tensor) or ids.dim() > 2 or ids.dtype not in MISSING:
            return None
        missing = MISSING[ids.dtype]
        given = ids.clone()
        given.view(-1)[0] = missing
        try:
            with torch.inference_mode():
                gaps = {**values, name: with_gaps(given, missing)}
                expected = flat_outputs(self._output(gaps))
                inputs = _inputs(self.source, self.cut, gaps, {**values, name: given})
                found = self.cut(*inputs)
        except FAULTS:
            return None
        return missing if _same(found, expected, exact=self.source.exact) else None


def _load(kind: Format, path: Path) -> graph_files.Graph:
    """Load the exported file as its users will; warn if that needs `trust=True`."""
    if kind in graph_files.PROGRAMS:
        return graph_files.load(kind, path, trust=True)
    try:
        return graph_files.load(kind, path)
    except UntrustedError as error:
        warnings.warn(f"this export can only be loaded with trust=True: {error}", stacklevel=2)
        return graph_files.load(kind, path, trust=True)


def _cut_model(source: GraphSource, values: Values) -> CutModel:
    if source.where == "outside":
        return cut_at_lookups(source.model, source.arguments, source.lookups, values)
    inside = source.inside
    model = graph_copy(source.model) if inside is None else replaced(source.model, inside)
    names = graph_inputs(source.model, values)
    return CutModel(model, source.arguments, names, ghosts(values)).eval()


def _captured(source: GraphSource, cut: CutModel) -> Any:
    with torch.no_grad():
        example = _example(source, cut, EXAMPLE_ROWS[0])
    return graph_files.capture(cut, example, _varying(source, cut))


def _example(source: GraphSource, cut: CutModel, rows: int) -> list[Tensor]:
    """Return the inputs of the graph for `rows` rows."""
    values = source.cut(rows)
    return _inputs(source, cut, values, values)


def _inputs(source: GraphSource, cut: CutModel, looked_up: Values, values: Values) -> list[Tensor]:
    """Return the lookup results for some arguments, and the graph's other arguments."""
    found: list[Tensor] = []
    if source.look_up is not None:
        found = source.look_up(looked_up)
        masks = [label["mask"] for label in _lookup_labels(source)]
        padded = [bool(mask) or _next(masks, n) for n, mask in enumerate(masks)]
        found = [_longer(t) if wide else t for t, wide in zip(found, padded, strict=True)]
    rest = [values[name] for name in cut.names]
    missing = MISSING[torch.int64]
    return [*found, *(v.in_places(missing) if isinstance(v, Jagged) else v for v in rest)]


def _next(masks: Sequence[Any], place: int) -> bool:
    return place + 1 < len(masks) and bool(masks[place + 1])


def _longer(tensor: Tensor) -> Tensor:
    """Pad to a length of at least 3: a length of 1 in an example would be fixed in the graph."""
    missing = max(0, 3 - tensor.shape[1])
    return functional.pad(tensor, [0, 0] * (tensor.dim() - 2) + [0, missing])


def _varying(source: GraphSource, cut: CutModel) -> list[frozenset[int]]:
    with torch.no_grad():
        pairs = zip(*(_example(source, cut, rows) for rows in EXAMPLE_ROWS[:2]), strict=True)
        axes = [
            {n for n, sizes in enumerate(zip(a.shape, b.shape, strict=True)) if len({*sizes}) > 1}
            for a, b in pairs
        ]
    for place, label in enumerate(_lookup_labels(source)):
        if label["mask"]:
            axes[place] |= {1}
            axes[place - 1] |= {1}
    return [frozenset(each) for each in axes]


def _lookup_labels(source: GraphSource) -> list[dict[str, Any]]:
    labels: list[dict[str, Any]] = []
    for number, lookup in enumerate(source.lookups if source.where == "outside" else ()):
        labels.append({"lookup": number, "mask": False})
        labels += [{"lookup": number, "mask": True}] if lookup.mask else []
        second = {"lookup": number, "mask": False, "squares": True}
        labels += [second] if lookup.squares else []
    return labels


def _count(source: GraphSource) -> int:
    return len(_lookup_labels(source))


def _name(label: Mapping[str, Any], lookups: Sequence[Lookup]) -> str:
    argument = label.get("argument")
    if argument is None:
        table = lookups[label["lookup"]].table
        part = "_mask" if label["mask"] else "_squares" if label.get("squares") else ""
        argument = f"{table}_{label['lookup']}{part}"
    return re.sub(r"\W", "_", argument)


def _unique(name: str, taken: Sequence[str]) -> str:
    return name if name not in taken else f"{name}_{len(taken)}"


def _require_same(rows: int, found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    if not _same(found, expected):
        raise ModelError(
            f"the graph does not give what the model gives for {number_of(rows, 'row')}: "
            "forward() must do the same for any rows, and not branch on values or on their "
            "number"
        )


def _same(found: Sequence[Tensor], expected: Sequence[Tensor], *, exact: bool = True) -> bool:
    """Return whether tensors have the same shapes and, if `exact`, the same numbers."""
    return all(
        ours.shape == theirs.shape
        and (
            not exact
            or torch.allclose(ours, theirs, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
        )
        for ours, theirs in zip(found, expected, strict=True)
    )
