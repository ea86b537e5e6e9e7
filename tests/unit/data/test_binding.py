from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

import flambeau as fb
from flambeau.config import Binding
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.errors import DataError, ModelError
from flambeau.inference.shorthands import expand

COLUMNS = ("age", "income", "item", "name", "clicked", "bought", "weight")
NAMED = Shape(COLUMNS)
ARRAYS = Shape(("x", "z", "y"), positional=("x", "z"), labels=("y",))


def make_batch() -> Batch:
    return Batch(
        {
            "age": torch.tensor([1, 2], dtype=torch.int32),
            "income": torch.tensor([0.5, 1.5], dtype=torch.float64),
            "item": torch.tensor([7, 8]),
            "name": np.array(["a", "b"], dtype=object),
            "clicked": torch.tensor([0, 1]),
            "bought": torch.tensor([1.0, float("nan")], dtype=torch.float64),
            "weight": torch.tensor([1.0, 2.0]),
        },
        2,
        epoch=3,
        index=4,
    )


def arrays() -> Batch:
    columns = {"x": torch.ones(2, 3), "z": torch.zeros(2), "y": torch.tensor([0, 1])}
    return Batch(columns, 2)


def call(binder: Binder, forward: Any, batch: Batch) -> Any:
    positional, named = binder.arguments(binder.assemble(batch))
    return forward(*positional, **named)


def bind(forward: Any, shape: Shape = NAMED, **settings: Any) -> Any:
    """What `forward` returns when it is called with a batch's columns."""
    binder = Binder(Binding(**settings), forward, shape, expand=expand)
    return call(binder, forward, make_batch() if shape is NAMED else arrays())


def test_columns_go_to_the_parameters_that_have_their_names() -> None:
    age, income = bind(lambda age, income: (age, income))
    assert age.tolist() == [1, 2]
    assert income.tolist() == [0.5, 1.5]


def test_a_parameter_with_a_default_may_have_no_column() -> None:
    assert bind(lambda age, scale=3: scale) == 3


def test_array_data_is_bound_by_position() -> None:
    first, second = bind(lambda a, b: (a, b), ARRAYS)
    assert (first.shape, second.shape) == ((2, 3), (2,))


def test_array_data_may_go_to_any_number_of_parameters() -> None:
    assert len(bind(lambda *parts: parts, ARRAYS)) == 2


def test_a_list_of_columns_is_stacked_into_one_tensor() -> None:
    stacked = bind(lambda x: x, inputs=["age", "income"])
    assert torch.equal(stacked, torch.tensor([[1.0, 0.5], [2.0, 1.5]]))


def test_stacked_integers_stay_integers() -> None:
    stacked = bind(lambda x: x, inputs=["age", "item"])
    assert stacked.dtype == torch.int64
    assert stacked.tolist() == [[1, 7], [2, 8]]


def test_columns_of_several_values_are_stacked_side_by_side() -> None:
    stacked = bind(lambda x: x, ARRAYS, inputs=["x", "z"])
    assert stacked.tolist() == [[1, 1, 1, 0], [1, 1, 1, 0]]


def test_a_dict_says_which_columns_go_to_which_parameter() -> None:
    x, ids = bind(lambda x, ids: (x, ids), inputs={"x": ["age", "income"], "ids": "item"})
    assert x.shape == (2, 2)
    assert ids.tolist() == [7, 8]


def test_a_dict_may_name_any_parameter_of_a_model_that_takes_all() -> None:
    assert set(bind(lambda **columns: columns, inputs={"u": "age", "v": "item"})) == {"u", "v"}


def test_a_stack_may_have_the_name_of_one_of_its_columns() -> None:
    stacked = bind(lambda age: age, inputs={"age": ["age", "item"]})
    assert stacked.tolist() == [[1, 7], [2, 8]]


def whole(batch: Batch) -> Batch:
    return batch


def by_string(rows: "fb.Batch") -> Any:
    return rows


@pytest.mark.parametrize("forward", [whole, by_string])
@pytest.mark.parametrize("shape", [NAMED, ARRAYS], ids=["named", "arrays"])
def test_a_parameter_annotated_batch_gets_all_columns(forward: Any, shape: Shape) -> None:
    assert tuple(bind(forward, shape)) == shape.columns


def test_the_batch_keeps_its_place_in_the_training() -> None:
    batch = bind(whole)
    assert (batch.epoch, batch.index) == (3, 4)


def test_the_batch_may_come_beside_columns_by_name() -> None:
    def forward(batch: Batch, age: Tensor) -> Any:
        return batch, age

    batch, age = bind(forward)
    assert age.tolist() == batch["age"].tolist()


@pytest.mark.parametrize(("shape", "inputs"), [(ARRAYS, None), (NAMED, ["age", "income"])])
def test_the_batch_may_come_before_what_goes_by_position(shape: Shape, inputs: Any) -> None:
    def forward(batch: Batch, a: Tensor, b: Tensor | None = None) -> Any:
        return batch, a

    batch, first = bind(forward, shape, inputs=inputs)
    assert isinstance(batch, Batch)
    assert isinstance(first, Tensor)


def test_only_columns_in_use_are_read() -> None:
    binder = Binder(Binding(label="clicked", keys=("name",)), lambda age: age, NAMED, expand=expand)
    assert binder.columns == ("age", "clicked", "name")


def test_with_the_whole_batch_all_columns_are_read() -> None:
    binder = Binder(
        Binding(inputs=("age", "item")), lambda x: x, NAMED, whole_batch=True, expand=expand
    )
    assert binder.columns == COLUMNS
    assert set(binder.assemble(make_batch())) == {*COLUMNS, "inputs", "x"}


def test_what_only_the_users_code_sees_may_be_missing() -> None:
    records = pa.record_batch({"age": [1], "item": pa.array([None], pa.int64()), "seen": [None]})
    records = records.set_column(2, "seen", pa.array([None], pa.bool_()))
    shape = Shape(tuple(records.schema.names))
    batch = Binder(Binding(inputs=("age",)), lambda x: x, shape, whole_batch=True).read(records)
    assert batch["age"].tolist() == [1]
    for name in ("item", "seen"):
        assert batch[name].dtype == torch.float64
        assert batch[name].isnan().all()


def test_members_of_a_stack_are_let_go_unless_they_are_used_otherwise() -> None:
    settings = Binding(inputs=("age", "item", "weight"), weight="weight", keys=("item",))
    binder = Binder(settings, lambda x: x, NAMED, expand=expand)
    some = make_batch()
    batch = Batch({name: some[name] for name in binder.columns}, some.size)
    assert set(binder.assemble(batch)) == {"inputs", "item", "weight"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_floating_point_inputs_are_brought_to_the_models_precision(dtype: torch.dtype) -> None:
    def forward(income: Tensor, item: Tensor) -> Any:
        return income.dtype, item.dtype

    binder = Binder(Binding(), forward, NAMED, dtype, expand=expand)
    assert call(binder, forward, make_batch()) == (dtype, torch.int64)


def test_labels_and_weights_keep_their_precision() -> None:
    binder = Binder(Binding(label="bought", weight="weight"), lambda age: age, NAMED, expand=expand)
    label = binder.label(binder.assemble(make_batch()))
    assert isinstance(label, Tensor)
    assert label.dtype == torch.float64


def labelled(label: Any, shape: Shape = NAMED, batch: Batch | None = None) -> Any:
    binder = Binder(Binding(label=label), lambda *args, **kwargs: None, shape, expand=expand)
    return binder.label(binder.assemble(batch or make_batch())), binder.label_columns()


def test_a_label_is_one_column() -> None:
    label, names = labelled("clicked")
    assert (label.tolist(), names) == ([0, 1], ("clicked",))


def test_a_list_of_labels_is_a_matrix() -> None:
    label, names = labelled(["clicked", "age"])
    assert (label.tolist(), names) == ([[0, 1], [1, 2]], ("clicked", "age"))


def test_a_dict_of_labels_is_kept_by_task() -> None:
    label, names = labelled({"click": "clicked", "buy": "bought"})
    assert (list(label), names) == (["click", "buy"], ("clicked", "bought"))
    assert label["click"].tolist() == [0, 1]


def test_array_data_brings_its_label() -> None:
    label, names = labelled(None, ARRAYS, arrays())
    assert (label.tolist(), names) == ([0, 1], ("y",))


def test_without_a_label_there_is_none() -> None:
    assert labelled(None) == (None, ())


def test_weight_and_group_are_columns_of_the_batch() -> None:
    binder = Binder(Binding(weight="weight", group="name"), lambda age: age, NAMED, expand=expand)
    weight, group = binder.weight(make_batch()), binder.group(make_batch())
    assert weight is not None
    assert weight.tolist() == [1.0, 2.0]
    assert group is not None
    assert group.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("forward", "shape", "settings", "error", "message"),
    [
        (lambda height: 0, NAMED, {}, ModelError, "forward.. needs 'height'.*the data has 'age'"),
        (lambda x: 0, NAMED, {"inputs": {"u": "age"}}, ModelError, "names 'u', but forward.*'x'"),
        (lambda x: 0, NAMED, {"inputs": {"x": "agee"}}, DataError, "no column 'agee'.*'age'"),
        (lambda x: 0, NAMED, {"inputs": ["age", "agee"]}, DataError, "no column 'agee'"),
        (lambda age: 0, NAMED, {"label": "click"}, DataError, "no column 'click'"),
        (
            lambda age: 0,
            NAMED,
            {"inputs": ["Age"]},
            DataError,
            "no column 'Age'; did you mean 'age'\\? The data has 'age', ",
        ),
        (lambda age: 0, NAMED, {"keys": ["user"]}, DataError, "no column 'user'"),
        (lambda age: 0, NAMED, {"weight": "w"}, DataError, "no column 'w'"),
        (lambda x: 0, ARRAYS, {}, ModelError, "2 input column.*forward.. takes 'x'"),
        (lambda a, b, c: 0, ARRAYS, {}, ModelError, "2 input column"),
        (
            lambda x, y: 0,
            NAMED,
            {"inputs": {"x": ["age", "item"], "y": "income"}, "label": "x"},
            DataError,
            "no column 'x'",
        ),
        (
            lambda age, y: 0,
            NAMED,
            {"inputs": {"age": ["item", "income"], "y": "age"}},
            ModelError,
            "'age' is both a column in use and a stacked input",
        ),
    ],
)
def test_what_does_not_fit_is_named(
    forward: Any, shape: Shape, settings: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Binder(Binding(**settings), forward, shape, expand=expand)


def test_text_cannot_be_stacked_with_numbers() -> None:
    with pytest.raises(DataError, match="'name' holds text"):
        bind(lambda x: x, inputs=["income", "name"])


def test_text_cannot_be_a_label() -> None:
    binder = Binder(
        Binding(inputs=["age", "name"], label="name"), lambda x: x, NAMED, expand=expand
    )
    with pytest.raises(DataError, match="label 'name' holds text"):
        binder.assemble(make_batch())


def test_a_function_without_a_signature_is_refused() -> None:
    with pytest.raises(ModelError, match="no signature"):
        Binder(Binding(), dict, NAMED, expand=expand)


def test_who_ranks_may_be_an_input_too() -> None:
    rows = pa.record_batch({"user": ["ann", "bob"], "y": [0.0, 1.0]})
    settings = Binding(inputs={"user": "user"}, label="y", group="user")
    binder = Binder(settings, lambda user: user, Shape(("user", "y")), expand=expand)
    batch = binder.read(rows)
    group = binder.group(batch)
    assert isinstance(group, torch.Tensor)
    assert group is batch["user"]


def test_ids_also_go_by_the_names_of_their_parameters() -> None:
    named = Binder(Binding(inputs={"x": "item"}), lambda x: x, NAMED, expand=expand).assemble(
        make_batch()
    )
    assert named["x"] is named["item"]
    taken = named.take(torch.tensor([1]))
    assert taken["x"] is taken["item"]
    shape = Shape(("x", "z", "y"), positional=("x", "z"), labels=("y",))
    batch = Batch({"x": torch.ones(2), "z": torch.tensor([3, 4]), "y": torch.tensor([0, 1])}, 2)
    placed = Binder(Binding(), lambda a, b: a, shape, expand=expand).assemble(batch)
    assert placed["b"] is placed["z"]
    assert "a" not in placed


@pytest.mark.parametrize("inputs", [["age:item"], {"x": "age:item"}])
def test_a_range_in_the_order_of_columns_is_refused_with_the_ranges_that_there_are(
    inputs: Any,
) -> None:
    with pytest.raises(DataError, match=r"'age:item' is not a range .* such as 'I1:I13'; list"):
        bind(lambda x: x, inputs=inputs)


LARGE = 2**63 + 5
KEYS = pa.record_batch(
    {
        "user": pa.array([LARGE, 7], pa.uint64()),
        "order": pa.array([LARGE, 8], pa.uint64()),
        "price": pa.array([0.5, 1.5]),
    }
)


def from_memory(records: pa.RecordBatch, binder: Binder) -> Batch:
    columns = {name: torch.tensor(records[name].to_numpy()) for name in records.schema.names}
    return binder.assemble(Batch(columns, len(records)))


@pytest.mark.parametrize("get", [lambda records, binder: binder.read(records), from_memory])
def test_ids_keep_their_bits_and_keys_their_values(get: Any) -> None:
    settings = Binding(inputs={"ids": ["user"]}, keys=("user", "order"))
    binder = Binder(settings, lambda ids: None, Shape(tuple(KEYS.schema.names)), expand=expand)
    batch = get(KEYS, binder)
    assert batch["ids"].tolist() == [[LARGE - 2**64], [7]]
    assert binder.key(batch, "user").tolist() == [LARGE, 7]
    assert binder.key(batch, "order").tolist() == [LARGE, 8]
    assert binder.key(batch.take(torch.tensor([1, 0])), "user").tolist() == [7, LARGE]


@pytest.mark.parametrize("get", [lambda records, binder: binder.read(records), from_memory])
def test_large_integers_beside_numbers_have_their_values(get: Any) -> None:
    settings = Binding(inputs=["user", "price"])
    binder = Binder(settings, lambda x: None, Shape(tuple(KEYS.schema.names)), expand=expand)
    (x,), _ = binder.arguments(get(KEYS, binder))
    assert x.tolist() == [[float(2**63), 0.5], [7.0, 1.5]]


def test_names_that_were_read_as_one_hint_at_the_delimiter() -> None:
    def forward(x: Tensor) -> None: ...

    message = r"no column 'a'.*'delimiter': ';'"
    with pytest.raises(DataError, match=message):
        Binder(Binding(inputs=["a", "b"], label="y"), forward, Shape(("a;b;y",)), expand=expand)


@pytest.mark.parametrize("numbers", [(), ("when",)])
def test_times_are_no_numbers(numbers: tuple[str, ...]) -> None:
    def forward(x: Tensor) -> None: ...

    members = ["when"] if numbers else ["when", "price"]
    when = pa.array([0, 1], pa.timestamp("ns"))
    records = pa.record_batch({"when": when, "price": [1.0, 2.0]})
    binder = Binder(
        Binding(inputs={"x": members}), forward, Shape(("when", "price")), expand=expand
    )
    with pytest.raises(DataError, match=r"'when' holds times.*frame\['when'\].dt.hour"):
        binder.with_numbers(numbers).read(records)
