"""A model as a function of tensors alone, for formats that support nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, final

import torch
from torch import Tensor, nn

from flambeau.data.jagged import Jagged
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.errors import ModelError
from flambeau.inference.arguments import Arguments, Leaf
from flambeau.inference.lookup_calls import Lookup
from flambeau.inference.lookup_sites import has_dense_fields, replaced


@final
class CutModel(nn.Module):
    """Module that takes the results of lookups, in order, and then the tensors named `names`.

    It returns a tuple of tensors. In `model`, all lookups are replaced; `fixed` are arguments on
    which the result does not depend.
    """

    def __init__(
        self,
        model: nn.Module,
        arguments: Arguments,
        names: Sequence[str],
        fixed: Mapping[str, Any],
        feed: "Feed | None" = None,
    ) -> None:
        super().__init__()
        self.model, self.arguments, self.names = model, arguments, tuple(names)
        self.fixed, self.feed = dict(fixed), feed

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the model's outputs as a flat tuple."""
        count = len(tensors) - len(self.names)
        if self.feed is not None:
            self.feed.begin(tensors[:count])
        values = {**self.fixed, **dict(zip(self.names, tensors[count:], strict=True))}
        positional, named = self.arguments.together(values)
        return flat_outputs(self.model(*positional, **named))


@final
class Feed:
    """Queue of the results of lookups."""

    def __init__(self, lookups: Sequence[Lookup]) -> None:
        self._lookups = lookups
        self._left: list[Any] = []

    def begin(self, tensors: Sequence[Tensor]) -> None:
        """Set the results of all lookups; a mask follows a padded one, squares follow a sum."""
        rest = list(tensors)
        self._left = [
            (rest.pop(0), rest.pop(0)) if lookup.mask or lookup.squares else rest.pop(0)
            for lookup in self._lookups
        ]

    def next(self) -> Any:
        """Return the result of the next lookup."""
        return self._left.pop(0)

    def stand_in(self, rows: SparseEmbedding) -> nn.Module:
        """Return a module that takes its result from this queue."""
        return _Fed(self)


@final
class _Fed(nn.Module):
    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self._feed = feed

    def forward(self, ids: Leaf) -> Any:
        return self._feed.next()

    def __deepcopy__(self, _: Any) -> "_Fed":
        return self


def cut_at_lookups(
    model: nn.Module, arguments: Arguments, lookups: Sequence[Lookup], values: Mapping[str, Leaf]
) -> CutModel:
    """Return the model with the results of its lookups as inputs."""
    feed = Feed(lookups)
    names = graph_inputs(model, values)
    return CutModel(replaced(model, feed.stand_in), arguments, names, ghosts(values), feed)


def graph_inputs(model: nn.Module, values: Mapping[str, Leaf]) -> list[str]:
    """Return the arguments that a graph can take: tensors, and ids with at most one in each place.

    Only models with dense fields use such ids for anything other than lookups.
    """
    in_places = has_dense_fields(model)
    return [
        name
        for name, value in values.items()
        if isinstance(value, Tensor) or (in_places and value.row_shape is not None)
    ]


def ghosts(values: Mapping[str, Leaf]) -> dict[str, "Ghost"]:
    """Return a placeholder for each jagged argument."""
    return {name: Ghost(value, name) for name, value in values.items() if isinstance(value, Jagged)}


class Ghost(Jagged):  # type: ignore[misc]  # final for all others
    """Placeholder for a jagged argument in a graph, which gets lookup results instead of ids."""

    def __init__(self, like: Jagged, name: str) -> None:
        fields = None if like.fields is None else torch.empty(0, dtype=torch.int64)
        for key, value in {"width": like.width, "fields": fields, "name": name}.items():
            object.__setattr__(self, key, value)

    def by_field(self, count: int) -> "Ghost":
        """Return itself: its content is never used."""
        return self

    def each(self, width: int) -> "Ghost":
        """Return itself: its content is never used."""
        return self

    def plain(self) -> "Ghost":
        """Return itself: its content is never used."""
        return self

    def __getattr__(self, attribute: str) -> NoReturn:
        raise ModelError(
            f"forward() uses '{attribute}' of the jagged argument '{self.__dict__['name']}', which "
            "a graph does not have: it gets what was looked up; use only the result of the lookup"
        )


def flat_outputs(output: Any) -> tuple[Tensor, ...]:
    """Return the tensors of a model's output: one, several, or by task."""
    if isinstance(output, Tensor):
        return (output,)
    parts = list(output.values()) if isinstance(output, Mapping) else list(output)
    if not all(isinstance(part, Tensor) for part in parts):
        raise ModelError("the model gives something else than tensors, which cannot be exported")
    return tuple(parts)


def output_names(output: Any) -> tuple[str, ...] | None:
    """Return the names of the outputs by task; None for a single tensor."""
    if isinstance(output, Tensor):
        return None
    if isinstance(output, Mapping):
        return tuple(str(name) for name in output)
    return tuple(f"output{number}" for number in range(len(output)))
