"""How columns meet the model: one rule, the same in training, evaluation and prediction."""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from flambeau.config import Binding
from flambeau.config.job import RANGES, LabelSetting, label_columns
from flambeau.config.settings import close_to
from flambeau.data import crossing
from flambeau.data.arrow_columns import holds_text, to_columns
from flambeau.data.batch import Batch, Column
from flambeau.data.filling import Filling
from flambeau.data.jagged import Jagged
from flambeau.data.label_map import map_labels
from flambeau.data.matching import STACKED, match, quoted
from flambeau.data.parameters import batch_parameter, parameters_of, takes_bags
from flambeau.data.stacking import refuse_times, stack, text_among_numbers
from flambeau.errors import DataError, ModelError

Label = Tensor | dict[str, Tensor] | None
GroupColumn = Tensor | np.ndarray[Any, Any]


@dataclass(frozen=True)
class Shape:
    """What a source says of its columns. `positional` and `labels` are set for unnamed data."""

    columns: tuple[str, ...]
    positional: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


@final
class Binder:
    """Gives the model its arguments, and the loss its label and weight, from a batch.

    `dtype` is that of the model's weights: floating-point inputs are brought to it.
    """

    def __init__(
        self,
        settings: Binding,
        forward: Callable[..., Any],
        shape: Shape,
        dtype: torch.dtype = torch.float32,
        *,
        whole_batch: bool = False,
    ) -> None:
        self._settings = settings
        self.dtype = dtype
        self._shape = shape
        parameters = parameters_of(forward)
        self._batch_parameter = batch_parameter(parameters)
        self._parameters = tuple(parameters)
        self._positional, self._named = match(
            settings.inputs, shape.columns, shape.positional, parameters
        )
        self._label = self._label_columns()
        read = [name for name in self._used() if name not in settings.crosses]
        read += [name for members in settings.crosses.values() for name in members]
        for name in [*read, *(settings.hash.keys() - settings.crosses.keys())]:
            self._check(name)
        self.stacks = self._stacks()
        wants_all = whole_batch or self._batch_parameter is not None
        #: What `forward` gets: columns, and stacks by their names.
        self.inputs = (*self._positional, *self._named.values())
        #: The columns to read: those that are used, or all.
        self.columns = shape.columns if wants_all else tuple(dict.fromkeys(read))
        self._nullable = frozenset(self.label_columns())
        self._salts = self._input_salts()
        self._bags = frozenset(
            column
            for name, column in self._arguments()
            if name in parameters and takes_bags(parameters[name].annotation)
        )
        narrow = self._single_inputs() if dtype == torch.float32 else ()
        self._narrow = frozenset(narrow) - self._other_uses()
        self._hashed: set[str] = set()
        self._numbers: frozenset[str] = frozenset()
        fillable = set(self.columns) - self._nullable if wants_all else self._salts.keys()
        self._filling = Filling(settings.fill, fillable, self.stacks.values())

    @property
    def numbers(self) -> frozenset[str]:
        """The columns of integers that the model takes as numbers."""
        return self._numbers

    def with_numbers(self, inputs: Collection[str]) -> "Binder":
        """The same binding for a model that takes these inputs as floating-point numbers."""
        numbers = [column for name in inputs for column in self.stacks.get(name, (name,))]
        for name in numbers:
            if name in self._settings.crosses:
                raise DataError(
                    f"column '{name}' of crosses= holds ids, and the model takes numbers"
                )
            if name in self._hashed:
                raise DataError(f"{text_among_numbers(name)}: the model takes no other")
        changed = copy.copy(self)
        changed._numbers = self._numbers.union(numbers)
        changed._filling = self._filling.with_numbers(changed._numbers)
        return changed

    def prepare(self, rows: Batch | pa.RecordBatch) -> Batch:
        """Rows as a source gives them, assembled."""
        return self.assemble(rows) if isinstance(rows, Batch) else self.read(rows)

    def read(self, records: pa.RecordBatch) -> Batch:
        """Rows as they come from files, assembled."""
        self._hashed |= {name for name in self._salts if holds_text(records.schema, name)}
        refuse_times(records.schema, self._taken_as_numbers(records.schema))
        filled = self._filling.in_records(records)
        columns = to_columns(filled, self._nullable, self._salts, self._bags, self._narrow)
        for name in self._hashed.intersection(self._settings.keys):
            as_it_is = records.select([name]).rename_columns([_key(name)])
            columns |= to_columns(as_it_is)
        return self.assemble(Batch(columns, records.num_rows))

    def _taken_as_numbers(self, schema: pa.Schema) -> frozenset[str]:
        floats = {field.name for field in schema if pa.types.is_floating(field.type)}
        return self._numbers.union(*(x for x in self.stacks.values() if floats.intersection(x)))

    def assemble(self, batch: Batch) -> Batch:
        """The batch with its input columns stacked and in the model's precision.

        Ids also go by the names of the parameters they are for, unless other columns do. Done once
        for a large block of rows, before it is cut into batches.
        """
        columns = self._with_ids(batch)
        self._filling.in_columns(columns)
        for name in self.label_columns():
            _refuse_text(columns.get(name), f"label '{name}'")
            if name in columns:
                columns[name] = self.as_label(name, columns[name])
        for name, members in self._settings.crosses.items():
            columns[name] = crossing.cross(name, [columns[member] for member in members])
        for name, members in self.stacks.items():
            named = {member: _ids_or_numbers(columns, member) for member in members}
            columns[name] = stack(named, self._hashed, self.dtype)
        for name in self._single_inputs():
            columns[name] = self._convert(_ids_or_numbers(columns, name))
        if self.columns != self._shape.columns:
            parts = [*self.stacks.values(), *self._settings.crosses.values()]
            done = {member for members in parts for member in members}
            for member in done - set(self.stacks) - set(self._single_inputs()) - self._other_uses():
                del columns[member]
        for argument, name in self._arguments():
            if _holds_ids(columns[name]):
                columns.setdefault(argument, columns[name])
        return Batch(columns, batch.size, batch.epoch, batch.index)

    def arguments(self, batch: Batch) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named arguments for `forward`."""
        positional: list[Any] = [self._argument(batch, column) for column in self._positional]
        named: dict[str, Any] = {
            name: self._argument(batch, column) for name, column in self._named.items()
        }
        if self._batch_parameter is None:
            return positional, named
        place = self._parameters.index(self._batch_parameter)
        if place < len(positional):
            positional.insert(place, batch)
        else:
            named[self._batch_parameter] = batch
        return positional, named

    def label(self, batch: Batch) -> Label:
        """The label: one tensor, `[rows, labels]` for a list, or a dict by task."""
        label = self._label
        if label is None:
            return None
        if isinstance(label, dict):
            return {task: _tensor(batch, column) for task, column in label.items()}
        if isinstance(label, str):
            return _tensor(batch, label)
        return torch.stack([_tensor(batch, column) for column in label], dim=1)

    def as_label(self, name: str, column: Column) -> Column:
        """A label's column of the data as the loss and metrics see it."""
        mapping = self._settings.label_map
        if not mapping or not isinstance(column, Tensor):
            return column
        return map_labels(column, mapping, name)

    def weight(self, batch: Batch) -> Tensor | None:
        """The weight of each row, if the job has one."""
        name = self._settings.weight
        return None if name is None else _tensor(batch, name)

    def group(self, batch: Batch) -> GroupColumn | None:
        """The group of each row, for grouped metrics."""
        name = self._settings.group
        if name is None:
            return None
        column = self.key(batch, name)
        if isinstance(column, Jagged):
            raise DataError(f"group='{name}' has several values in a row, or none; give one each")
        return column

    def key(self, batch: Batch, name: str) -> Column:
        """A column as it is in the data, also if the model sees its texts as ids."""
        return batch.columns.get(_key(name), batch[name])

    def label_columns(self) -> tuple[str, ...]:
        """The label's columns; these may hold nulls, which mask a row for that task."""
        return label_columns(self._label)

    def _label_columns(self) -> LabelSetting:
        if self._settings.label is not None or not self._shape.labels:
            return self._settings.label
        labels = self._shape.labels
        return labels[0] if len(labels) == 1 else labels

    def _stacks(self) -> dict[str, tuple[str, ...]]:
        inputs = self._settings.inputs
        if inputs is None:
            return {}
        named = inputs if isinstance(inputs, dict) else {STACKED: inputs}
        stacks = {name: columns for name, columns in named.items() if not isinstance(columns, str)}
        clash = set(stacks) & (self._other_uses() | set(self._single_inputs()))
        if clash:
            raise ModelError(f"{quoted(clash)} is both a column in use and a stacked input")
        return stacks

    def _arguments(self) -> list[tuple[str, str]]:
        """The parameters of `forward` with their columns, which go by both names."""
        places = [name for name in self._parameters if name != self._batch_parameter]
        return [*zip(places, self._positional, strict=False), *self._named.items()]

    def _argument(self, batch: Batch, column: str) -> Column:
        """A column of the batch; bags with their columns' names, for messages."""
        found = batch[column]
        if isinstance(found, Jagged):
            return replace(found, names=self.stacks.get(column, (column,)))
        return found

    def _single_inputs(self) -> list[str]:
        inputs = self._settings.inputs
        if isinstance(inputs, dict):
            return [columns for columns in inputs.values() if isinstance(columns, str)]
        return [] if inputs is not None else [*self._positional, *self._named.values()]

    def _other_uses(self) -> set[str]:
        settings = self._settings
        names = {*self.label_columns(), *settings.keys, settings.weight, settings.group}
        return {name for name in names if name is not None}

    def _used(self) -> list[str]:
        inputs = self._settings.inputs
        groups = inputs.values() if isinstance(inputs, dict) else [inputs] if inputs else []
        stacked = [name for group in groups if not isinstance(group, str) for name in group]
        rest = [name for name in (self._settings.weight, self._settings.group) if name is not None]
        return [
            *self._single_inputs(),
            *stacked,
            *self.label_columns(),
            *self._settings.keys,
            *rest,
        ]

    def _check(self, name: str) -> None:
        if name not in self._shape.columns:
            if set(name.split(":", 1)) <= set(self._shape.columns):
                raise DataError(f"{name!r} is not a range of columns: {RANGES}")
            close = close_to(name, self._shape.columns)
            hint = f"did you mean '{close}'? The" if close else "the"
            raise DataError(
                f"there is no column '{name}'; {hint} data has {quoted(self._shape.columns)}"
                f"{_delimiter_hint(self._shape.columns)}"
            )

    def _input_salts(self) -> dict[str, str]:
        """The columns that the model sees, with what their texts are hashed with."""
        crosses = self._settings.crosses
        parts = [*self.stacks.values(), *crosses.values(), self._single_inputs()]
        names = {name for members in parts for name in members} - crosses.keys()
        # Groups are only compared, which ids are as good for; other uses need what is in the data.
        kept = {*self.label_columns(), self._settings.weight}
        kept |= {*self._settings.keys, self._settings.group} - names
        names = (names | self._settings.hash.keys()) - kept
        return {name: self._settings.hash.get(name, name) for name in names}

    def _with_ids(self, batch: Batch) -> dict[str, Column]:
        """The columns, with ids in the place of texts that come from memory."""
        columns: dict[str, Column] = dict(batch.columns)
        self._plain(columns)
        for name, salt in self._salts.items():
            column = columns.get(name)
            if isinstance(column, np.ndarray):
                found = pa.record_batch({name: pa.array(column, from_pandas=True)})
                columns |= to_columns(found, salts={name: salt})
                self._hashed.add(name)
                if name in self._settings.keys:
                    columns[_key(name)] = column
        return columns

    def _plain(self, columns: dict[str, Column]) -> None:
        """Make numbers of integers that the model takes as such, and int64 of other uint64.

        The latter keep their bits. What other uses need as it is in the data is kept for them.
        """
        floats = {name for name, column in columns.items() if _is_floating(column)}
        numbers = self._numbers.union(*(x for x in self.stacks.values() if floats.intersection(x)))
        for name, column in list(columns.items()):
            if not isinstance(column, Tensor) or column.is_floating_point():
                continue
            if name in self._numbers or (name in numbers and column.dtype == torch.uint64):
                plain = column.to(self.dtype)
            elif column.dtype == torch.uint64:
                plain = column.view(torch.int64)
            else:
                continue
            if name in {*self._settings.keys, self._settings.group}:
                columns[_key(name)] = column
            columns[name] = plain

    def _convert(self, value: Tensor | Jagged) -> Tensor | Jagged:
        if isinstance(value, Jagged):
            if value.values is None:
                return value
            return replace(value, values=value.values.to(self.dtype))
        return value.to(self.dtype) if value.is_floating_point() else value


def _delimiter_hint(columns: Sequence[str]) -> str:
    """What to change if the names of all columns were read as one."""
    found = next((sign for sign in ";\t|" if sign in columns[0]), None) if columns else None
    if len(columns) != 1 or found is None:
        return ""
    return f". If that is a CSV file, give options={{'delimiter': {found!r}}} of the data"


def _ids_or_numbers(columns: Mapping[str, Column], name: str) -> Tensor | Jagged:
    column = columns[name]
    if isinstance(column, np.ndarray):
        raise DataError(
            f"column '{name}' holds neither numbers nor texts nor lists of them; leave it out of "
            "inputs= (keys= may name it)"
        )
    return column


def _is_floating(column: Column) -> bool:
    return isinstance(column, Tensor) and column.is_floating_point()


def _holds_ids(column: Column) -> bool:
    return isinstance(column, Jagged) or column.dtype == torch.int64


def _refuse_text(column: Column | None, what: str) -> None:
    if isinstance(column, np.ndarray):
        raise DataError(f"{what} holds text or lists, not numbers; make numbers of it in the data")


def _tensor(batch: Batch, name: str) -> Tensor:
    column = batch[name]
    if not isinstance(column, Tensor):
        raise DataError(
            f"column '{name}' holds text or lists, not numbers; leave it out of label= and weight= "
            "(keys= may name it)"
        )
    return column


def _key(name: str) -> str:
    """Under which name a column is kept as it is in the data, where the model sees it otherwise."""
    return f"key:{name}"
