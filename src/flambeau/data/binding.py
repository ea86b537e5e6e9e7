"""Binding of columns to the model: the same in training, evaluation and prediction."""

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from flambeau.config import Binding
from flambeau.config.job import LabelSetting, label_columns
from flambeau.data.arrow_columns import holds_text, items_are_text, to_columns
from flambeau.data.batch import Batch, Column
from flambeau.data.filling import Filling
from flambeau.data.integer_columns import holds_ids, ids_or_numbers, plain_integers
from flambeau.data.jagged import Jagged
from flambeau.data.label_map import map_labels, numbers_in, refuse_text
from flambeau.data.matching import STACKED, match, quoted, require_column
from flambeau.data.memory_columns import expand_columns, texts_of
from flambeau.data.parameters import batch_parameter, parameters_of, takes_bags
from flambeau.data.raw_columns import Expand, Features, Operations, Shorthand
from flambeau.data.stacking import flat_stacks, refuse_times, stack, stack_flat, text_among_numbers
from flambeau.errors import DataError, ModelError

Label = Tensor | dict[str, Tensor] | None
GroupColumn = Tensor | np.ndarray[Any, Any]


@dataclass(frozen=True)
class Shape:
    """Column names of a source. `positional` and `labels` are set for unnamed data."""

    columns: tuple[str, ...]
    positional: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Plan:
    """Processing of rows of a schema.

    `keys` are kept unchanged, `flat` are stacks to make at once, `others` are all other columns.
    """

    schema: pa.Schema
    operations: Operations | None
    keys: tuple[str, ...]
    flat: Mapping[str, tuple[str, ...]]
    others: list[str]


@final
class Binder:
    """Binding of a batch to the model's arguments and to the loss's label and weight.

    Floating-point inputs are converted to `dtype`, that of the model's weights. With `features`,
    the columns of `shape` are made from raw ones, which are then the ones to read. `expand` returns
    the operations that make ids of texts, and crosses; without it, texts cannot be inputs.
    """

    def __init__(
        self,
        settings: Binding,
        forward: Callable[..., Any],
        shape: Shape,
        dtype: torch.dtype = torch.float32,
        *,
        whole_batch: bool = False,
        features: Features | None = None,
        expand: Expand | None = None,
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
            require_column(name, shape.columns)
        self.stacks = self._stacks()
        wants_all = whole_batch or self._batch_parameter is not None
        #: Arguments of `forward`: columns, and stacks by their names.
        self.inputs = (*self._positional, *self._named.values())
        used = shape.columns if wants_all else tuple(dict.fromkeys(read))
        self._keeps_all = used == shape.columns
        self._raw = None if features is None else features.reader(used)
        #: Columns to read: those that are used, or all.
        self.columns = used if self._raw is None else self._raw.columns
        labels = self.label_columns()
        #: Integers and booleans that may be missing: labels, and what only the user's code sees.
        self._nullable = frozenset({*labels, *(set(used) - set(read))})
        self._shorthand = self._described()
        self._expand = expand
        self._plan: _Plan | None = None
        self._bags = frozenset(
            column
            for name, column in self._arguments()
            if name in parameters and takes_bags(parameters[name].annotation)
        )
        narrow = self._single_inputs() if dtype == torch.float32 else ()
        self._narrow = frozenset(narrow) - self._other_uses()
        self._hashed: set[str] = set()
        self._numbers: frozenset[str] = frozenset()
        salts = self._shorthand.salts
        fillable = set(used) - set(labels) if wants_all else salts.keys()
        self._filling = Filling(settings.fill, fillable, self.stacks.values())

    @property
    def numbers(self) -> frozenset[str]:
        """Integer columns that the model takes as numbers."""
        return self._numbers

    def with_numbers(self, inputs: Collection[str]) -> "Binder":
        """Return the same binding for a model that takes these inputs as floating-point numbers."""
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
        changed._plan = None
        return changed

    def prepare(self, rows: Batch | pa.RecordBatch) -> Batch:
        """Assemble rows as a source returns them."""
        return self.assemble(rows) if isinstance(rows, Batch) else self.read(rows)

    def read(self, records: pa.RecordBatch) -> Batch:
        """Assemble rows as they come from files."""
        made = records if self._raw is None else self._raw(records)
        plan = self._plan_for(made.schema)
        keys = plan.keys if self._raw is None else self._settings.keys
        kept = [name for name in keys if name in records.schema.names]
        if plan.operations is not None:
            made = plan.operations(made)
        stacked: dict[str, Column] = {}
        for name, members in plan.flat.items():
            stacked[name] = stack_flat([made.column(member) for member in members], self.dtype)
        if plan.flat:
            made = made.select(plan.others)
        inputs = {*self._shorthand.salts, *self._shorthand.crosses}
        filled = self._filling.in_records(made)
        columns = to_columns(filled, self._nullable, inputs, self._bags, self._narrow)
        if kept:
            as_they_are = records.select(kept).rename_columns([_key(name) for name in kept])
            columns |= to_columns(as_they_are, frozenset(as_they_are.schema.names))
        self._plain(columns)
        return self._assembled(columns, Batch(stacked, records.num_rows))

    def _plan_for(self, schema: pa.Schema) -> "_Plan":
        """Return the plan for rows of these types, which are usually those of the previous rows."""
        plan = self._plan
        if plan is None or not plan.schema.equals(schema):
            self._plan = plan = self._planned(schema)
        return plan

    def _planned(self, schema: pa.Schema) -> "_Plan":
        refuse_times(schema, self._taken_as_numbers(schema))
        texts = {name for name in self._shorthand.salts if holds_text(schema, name)}
        self._hashed |= texts
        operations = self._operations(schema)
        made = schema if operations is None else operations.schema
        flat = flat_stacks(self._flat_candidates(), made)
        done = {member for members in flat.values() for member in members}
        others = [name for name in made.names if name not in done]
        keys = tuple(name for name in self._settings.keys if name in texts)
        return _Plan(schema, operations, keys, flat, others)

    def _operations(self, schema: pa.Schema) -> Operations | None:
        """Return the operations that make ids of texts, and crosses; None if there are none."""
        given = self._shorthand
        texts = (items_are_text(schema.field(x).type) for x in given.salts if x in schema.names)
        if self._expand is None or not (given.crosses or any(texts)):
            return None
        return self._expand(given, schema)

    def _flat_candidates(self) -> dict[str, tuple[str, ...]]:
        """Return the stacks whose columns need no other processing and have no other use."""
        if self._keeps_all:
            return {}
        members = [name for names in self.stacks.values() for name in names]
        taken = self._numbers | self._other_uses() | set(self._single_inputs())
        taken |= self._filling.columns | {x for x in members if members.count(x) > 1}
        return {name: x for name, x in self.stacks.items() if taken.isdisjoint(x)}

    def _taken_as_numbers(self, schema: pa.Schema) -> frozenset[str]:
        floats = {field.name for field in schema if pa.types.is_floating(field.type)}
        return self._numbers.union(*(x for x in self.stacks.values() if floats.intersection(x)))

    def assemble(self, batch: Batch) -> Batch:
        """Return the batch with its input columns stacked and in the model's precision.

        Ids are also available under the names of their parameters, unless other columns have these
        names. Do this once for a large block of rows, before it is cut into batches.
        """
        columns: dict[str, Column] = dict(batch.columns)
        self._plain(columns)
        self._expanded(columns)
        return self._assembled(columns, replace(batch, columns={}))

    def _assembled(self, columns: dict[str, Column], batch: Batch) -> Batch:
        """Return the batch with these columns added, stacking those that belong to a stack."""
        self._filling.in_columns(columns)
        for name in self.label_columns():
            refuse_text(columns.get(name), f"label '{name}'")
            if name in columns:
                columns[name] = self.as_label(name, columns[name])
        columns |= batch.columns
        for name, members in self.stacks.items():
            if name not in batch.columns:
                named = {member: ids_or_numbers(columns, member) for member in members}
                columns[name] = stack(named, self._hashed, self.dtype)
        for name in self._single_inputs():
            columns[name] = self._convert(ids_or_numbers(columns, name))
        if not self._keeps_all:
            done = {member for members in self.stacks.values() for member in members}
            for member in done - set(self.stacks) - set(self._single_inputs()) - self._other_uses():
                columns.pop(member, None)
        for argument, name in self._arguments():
            if holds_ids(columns[name]):
                columns.setdefault(argument, columns[name])
        return Batch(columns, batch.size, batch.epoch, batch.index)

    def arguments(self, batch: Batch) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and named arguments for `forward`."""
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
        """Return the label: one tensor, `[rows, labels]` for a list, or a dict by task."""
        label = self._label
        if label is None:
            return None
        if isinstance(label, dict):
            return {task: numbers_in(batch, column) for task, column in label.items()}
        if isinstance(label, str):
            return numbers_in(batch, label)
        return torch.stack([numbers_in(batch, column) for column in label], dim=1)

    def as_label(self, name: str, column: Column) -> Column:
        """Return a label column as the loss and metrics receive it."""
        mapping = self._settings.label_map
        if not mapping or not isinstance(column, Tensor):
            return column
        return map_labels(column, mapping, name)

    def weight(self, batch: Batch) -> Tensor | None:
        """Return the weight of each row, or None if the job has no weights."""
        name = self._settings.weight
        return None if name is None else numbers_in(batch, name)

    def group(self, batch: Batch) -> GroupColumn | None:
        """Return the group of each row for grouped metrics, or None if the job has no groups."""
        name = self._settings.group
        if name is None:
            return None
        column = self.key(batch, name)
        if isinstance(column, Jagged):
            raise DataError(f"group='{name}' has several values in a row, or none; give one each")
        return column

    def key(self, batch: Batch, name: str) -> Column:
        """Return a column as it is in the data, even if the model gets its texts as ids."""
        return batch.columns.get(_key(name), batch[name])

    def label_columns(self) -> tuple[str, ...]:
        """Return the label's columns; nulls in them mask a row for that task."""
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
        """Return the parameters of `forward` with their columns, which have both names."""
        places = [name for name in self._parameters if name != self._batch_parameter]
        return [*zip(places, self._positional, strict=False), *self._named.items()]

    def _argument(self, batch: Batch, column: str) -> Column:
        """Return a column of the batch; bags get their columns' names, for messages."""
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

    def _described(self) -> Shorthand:
        """Return the columns that the model takes, with the salts of their texts, and crosses."""
        crosses = self._settings.crosses
        parts = [*self.stacks.values(), *crosses.values(), self._single_inputs()]
        names = {name for members in parts for name in members} - crosses.keys()
        # Groups are only compared, for which ids suffice; other uses need the values in the data.
        kept = {*self.label_columns(), self._settings.weight}
        kept |= {*self._settings.keys, self._settings.group} - names
        names = (names | self._settings.hash.keys()) - kept
        salts = {name: self._settings.hash.get(name, name) for name in sorted(names)}
        members = {name for each in crosses.values() for name in each}
        unused = set() if self._keeps_all else members - set(self._used())
        return Shorthand(salts, crosses, unused)

    def _expanded(self, columns: dict[str, Column]) -> None:
        """Replace texts from memory by ids, and add crosses."""
        texts = texts_of(columns, self._shorthand)
        if self._expand is None or not (texts or self._shorthand.crosses):
            return
        kept = {_key(name): columns[name] for name in texts.intersection(self._settings.keys)}
        self._hashed |= texts
        expand_columns(columns, self._shorthand, self._expand)
        columns |= kept

    def _plain(self, columns: dict[str, Column]) -> None:
        """Convert integers that the model takes as numbers, and other uint64 columns to int64.

        Columns that other uses need as they are in the data are kept for them.
        """
        plain = plain_integers(columns, self._numbers, self.stacks.values(), self.dtype)
        for name in plain.keys() & {*self._settings.keys, self._settings.group}:
            columns[_key(name)] = columns[name]
        columns |= plain

    def _convert(self, value: Tensor | Jagged) -> Tensor | Jagged:
        if isinstance(value, Jagged):
            if value.values is None:
                return value
            return replace(value, values=value.values.to(self.dtype))
        return value.to(self.dtype) if value.is_floating_point() else value


def _key(name: str) -> str:
    """Return the name under which the original column is kept if the model's is converted."""
    return f"key:{name}"
