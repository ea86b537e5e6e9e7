from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flambeau.config import Binding
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.data.jagged import Jagged
from flambeau.data.text_hash import combine, hash_texts
from flambeau.errors import DataError
from flambeau.inference.shorthands import expand

MASK = 2**64 - 1


def mixed(bits: int) -> int:
    """`kernels.mixing.mix`, in plain integers."""
    for _ in range(2):
        bits ^= bits >> 32
        bits = bits * 0xD6E8FEB86659FD93 & MASK
    return bits ^ bits >> 32


def stated(text: bytes, salt: int) -> int:
    """What the hash is, said plainly."""
    golden = 0x9E3779B97F4A7C15
    state = salt ^ (len(text) * golden & MASK)
    whole = len(text) // 8 * 8
    for start in range(0, whole, 8):
        state = mixed(state ^ int.from_bytes(text[start : start + 8], "little")) + golden & MASK
    found = mixed(state ^ int.from_bytes(text[whole:], "little"))
    return found - 2**64 if found >= 2**63 else found


@given(st.lists(st.text(max_size=30), max_size=6))
def test_the_hash_is_what_it_says(texts):
    from flambeau.data.text_hash import salt_of

    found = hash_texts(pa.array(texts, pa.string()), "c").tolist()
    assert found == [stated(text.encode(), int(salt_of("c"))) for text in texts]


def test_ids_never_change():
    """They are in the tables of people's models."""
    assert hash_texts(pa.array(["", "68fd1e64", "a longer text"]), "C1").tolist() == PINNED


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.string_view()])
def test_all_kinds_of_text_hash_alike(kind):
    array = pa.array(["x", "ab", "cd"]).cast(kind).slice(1)
    assert hash_texts(array, "s").tolist() == hash_texts(pa.array(["ab", "cd"]), "s").tolist()


def test_columns_are_salted():
    texts = pa.array(["x"])
    assert hash_texts(texts, "a")[0] != hash_texts(texts, "b")[0]


def test_many_texts_have_different_ids():
    texts = pa.array([f"{number:x}" for number in range(200_000)])
    assert np.unique(hash_texts(texts, "c")).size == 200_000


def test_input_texts_become_ids():
    batch = pa.record_batch(
        {"a": ["x", None, "y"], "b": pa.array(["x", "x", None]).dictionary_encode(), "k": ["p"] * 3}
    )
    binder = Binder(
        Binding(keys=("k",), hash={"b": "a"}), lambda a, b: a, Shape(("a", "b", "k")), expand=expand
    )
    columns: Any = binder.read(batch)
    assert columns["k"].dtype == object
    first = hash_texts(pa.array(["x", "y"]), "a")
    assert columns["a"].ids.tolist() == first.tolist()
    assert columns["a"].lengths.tolist() == [1, 0, 1]
    assert columns["b"].ids.tolist() == [first[0], first[0]]


def test_input_lists_become_bags():
    batch = pa.record_batch(
        {
            "texts": [["x"], None, ["y", "x"]],
            "ids": [[1], None, [2, 3]],
            "weighted": pa.array(
                [[(1, 0.5)], [], [(2, 1.5)]],
                pa.list_(pa.struct([("id", pa.int64()), ("value", pa.float64())])),
            ),
            "map": pa.array([[(9, 0.5)], [], [(2, 1.5)]], pa.map_(pa.int64(), pa.float32())),
            "missing": pa.array([1, None, 3]),
        }
    ).slice(1)
    names = tuple(batch.schema.names)
    binder = Binder(
        Binding(), lambda texts, ids, weighted, map, missing: 0, Shape(names), expand=expand
    )
    columns: Any = binder.read(batch)
    assert all(isinstance(column, Jagged) for column in columns.values())
    assert columns["texts"].lengths.tolist() == [0, 2]
    assert columns["ids"].ids.tolist() == [2, 3]
    assert columns["weighted"].values.tolist() == [1.5]
    assert columns["map"].ids.tolist() == [2]
    assert columns["map"].offsets.tolist() == [0, 0, 1]
    assert columns["missing"].lengths.tolist() == [0, 1]


def bind(batch: Batch, forward, **binding) -> Batch:
    shape = Shape(tuple(batch.columns))
    return Binder(Binding(**binding), forward, shape, expand=expand).assemble(batch)


def test_one_id_columns_with_missing_values_are_stacked_into_bags():
    def forward(ids):
        return ids

    records = pa.record_batch({"a": pa.array([1, None]), "b": pa.array([3, 4])})
    binder = Binder(Binding(inputs={"ids": ["a", "b"]}), forward, Shape(("a", "b")), expand=expand)
    ids = binder.read(records)["ids"]
    assert isinstance(ids, Jagged)
    assert ids.width == 2
    assert ids.ids.tolist() == [1, 3, 4]
    assert ids.lengths.tolist() == [1, 1, 0, 1]


def test_missing_ids_cannot_be_stacked_with_numbers():
    def forward(x):
        return x

    records = pa.record_batch({"a": pa.array([1, None]), "b": pa.array([3.0, 4.0])})
    binder = Binder(Binding(inputs={"x": ["a", "b"]}), forward, Shape(("a", "b")), expand=expand)
    with pytest.raises(DataError, match="column 'a' has missing or several ids"):
        binder.read(records)


def test_texts_in_memory_are_hashed_too():
    def forward(city):
        return city

    batch = Batch({"city": np.array(["x", "y"], object)}, 2)
    expected = hash_texts(pa.array(["x", "y"]), "town")
    assert bind(batch, forward, hash={"city": "town"})["city"].tolist() == expected.tolist()


def test_columns_are_crossed():
    def forward(both):
        return both

    columns = {"a": torch.tensor([1, 2]), "b": torch.tensor([3, 4]), "y": torch.tensor([0, 1])}
    batch = Batch(columns, 2)
    found = bind(batch, forward, inputs={"both": "a_b"}, crosses={"a_b": ["a", "b"]})
    expected = combine([np.array([1, 2]), np.array([3, 4])], "a_b")
    assert found["a_b"].tolist() == expected.tolist()
    assert set(found) == {"a_b", "both", "y"}
    swapped = combine([np.array([3, 4]), np.array([1, 2])], "a_b")
    assert not set(swapped) & set(expected)


def test_a_cross_with_a_missing_part_is_missing():
    def forward(both):
        return both

    records = pa.record_batch({"a": pa.array([1, None]), "b": pa.array([3, 4])})
    settings = Binding(inputs={"both": "a_b"}, crosses={"a_b": ("a", "b")})
    column = Binder(settings, forward, Shape(("a", "b")), expand=expand).read(records)["a_b"]
    assert isinstance(column, Jagged)
    assert column.lengths.tolist() == [1, 0]


def test_crosses_of_several_ids_and_of_nothing_are_refused():
    def forward(both):
        return both

    records = pa.record_batch({"a": [[1], [1, 2]], "b": pa.array([3, 4])})
    settings = Binding(inputs={"both": "a_b"}, crosses={"a_b": ("a", "b")})
    with pytest.raises(DataError, match="'a_b' is made of columns with one id"):
        Binder(settings, forward, Shape(("a", "b")), expand=expand).read(records)
    with pytest.raises(ValueError, match="two or more other columns"):
        Binding(crosses={"a": ("a", "b")})
    with pytest.raises(DataError, match="no column 'c'"):
        Binder(
            Binding(inputs={"both": "x"}, crosses={"x": ("a", "c")}),
            forward,
            Shape(("a", "b")),
            expand=expand,
        )


PINNED = [8799156528518491986, 6643464786435540670, 6295869855813595012]


def test_texts_that_are_keys_and_inputs_are_both():
    def forward(user):
        return user

    settings = Binding(keys=("user",))
    binder = Binder(settings, forward, Shape(("user",)), expand=expand)
    expected = hash_texts(pa.array(["x", "y"]), "user").tolist()
    from_file = binder.read(pa.record_batch({"user": ["x", "y"]}))
    in_memory = binder.assemble(Batch({"user": np.array(["x", "y"], object)}, 2))
    for batch in (from_file, in_memory):
        assert batch["user"].tolist() == expected
        assert binder.key(batch, "user").tolist() == ["x", "y"]


def test_a_salt_for_a_column_that_is_not_there_is_refused():
    with pytest.raises(DataError, match="no column 'histry'"):
        Binder(Binding(hash={"histry": "item"}), lambda a: a, Shape(("a",)), expand=expand)
