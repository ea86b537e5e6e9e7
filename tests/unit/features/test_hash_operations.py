"""Ids by hash are those that training gives, and spread evenly below a modulo."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_checks import transformed

from flambeau.config import Binding
from flambeau.data.binding import Binder, Shape
from flambeau.data.sources.text.criteo import open_criteo
from flambeau.data.text_hash import combine, hash_texts, salt_of
from flambeau.errors import ConfigError, DataError
from flambeau.features.operations.hashing import Cross, Hash
from flambeau.features.pipeline import Pipeline
from flambeau.inference.shorthands import expand

WORDS = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
FACTOR = 0xD6E8FEB86659FD93
texts = st.none() | st.sampled_from(["", "a", "é", "日本語", "🔥" * 5]) | st.text(max_size=12)
integers = st.none() | st.integers(-(1 << 63), (1 << 63) - 1)


def mixed(bits: int) -> int:
    """State in Python what `kernels.mixing.mix` does."""
    for _ in range(2):
        bits ^= bits >> 32
        bits = bits * FACTOR & WORDS
    return bits ^ bits >> 32


def text_hash(text: str, salt: str) -> int:
    """State in Python what `hash_texts` does, as unsigned bits."""
    data = text.encode()
    state = int(salt_of(salt)) ^ (len(data) * GOLDEN & WORDS)
    whole = len(data) // 8 * 8
    for start in range(0, whole, 8):
        state = mixed(state ^ int.from_bytes(data[start : start + 8], "little")) + GOLDEN & WORDS
    return mixed(state ^ int.from_bytes(data[whole:], "little"))


def combined(ids: list[int], salt: str) -> int:
    """State in Python what `combine` does, as unsigned bits."""
    state = int(salt_of(salt))
    for each in ids:
        state = mixed(state ^ each & WORDS) + GOLDEN & WORDS
    return state


def signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def column(table: pa.Table, name: str) -> list[Any]:
    return table[name].to_pylist()


@given(st.lists(texts, min_size=1, max_size=6), st.none() | st.text(max_size=3))
@settings(max_examples=12)
def test_texts_have_the_hash_with_a_salt(rows: list[str | None], salt: str | None) -> None:
    table = pa.table({"a": pa.array(rows, pa.string())})
    found = column(transformed(Hash("a", salt=salt), table), "a")
    name = "a" if salt is None else salt
    assert found == [None if x is None else signed(text_hash(x, name)) for x in rows]


@given(
    st.lists(texts, min_size=1, max_size=6),
    st.sampled_from([1, 2, 10, 1 << 40, (1 << 63) - 1]) | st.integers(1, 1000),
)
@settings(max_examples=12)
def test_a_modulo_takes_the_rest_of_the_unsigned_hash(rows: list[str | None], modulo: int) -> None:
    table = pa.table({"a": pa.array(rows, pa.string())})
    found = column(transformed(Hash("a", modulo=modulo), table), "a")
    assert found == [None if x is None else text_hash(x, "a") % modulo for x in rows]


@given(st.lists(integers, min_size=1, max_size=6))
@settings(max_examples=12)
def test_integers_are_their_own_ids_or_mixed_with_the_salt(rows: list[int | None]) -> None:
    table = pa.table({"a": pa.array(rows, pa.int64())})
    assert column(transformed(Hash("a"), table), "a") == rows
    salted = column(transformed(Hash("a", salt="s"), table), "a")
    assert salted == [None if x is None else signed(combined([x], "s")) for x in rows]
    below = column(transformed(Hash("a", modulo=7), table), "a")
    assert below == [None if x is None else combined([x], "a") % 7 for x in rows]


def test_consecutive_integers_spread_evenly() -> None:
    table = pa.table({"a": pa.array(range(0, 64_000, 64))})
    found = Pipeline([Hash("a", modulo=64)]).fit(table).transform(table)
    counts = np.bincount(found["a"].to_numpy(), minlength=64)
    assert counts.min() > 0
    assert counts.max() < 40


def test_unsigned_integers_keep_their_bits() -> None:
    table = pa.table({"a": pa.array([0, (1 << 64) - 1], pa.uint64())})
    assert column(transformed(Hash("a"), table), "a") == [0, -1]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_ids_of_texts_do_not_depend_on_how_they_are_stored(kind: pa.DataType) -> None:
    plain = pa.array(["x", None, "", "x"])
    expected = transformed(Hash("a"), pa.table({"a": plain}))
    assert transformed(Hash("a"), pa.table({"a": plain.cast(kind)})).equals(expected)


def test_lists_keep_their_shape() -> None:
    rows = [["x", None, ""], [], None, ["x"]]
    found = transformed(Hash("a"), pa.table({"a": pa.array(rows, pa.list_(pa.string()))}))
    x, empty = signed(text_hash("x", "a")), signed(text_hash("", "a"))
    assert found.schema.field("a").type == pa.large_list(pa.int64())
    assert column(found, "a") == [[x, None, empty], [], None, [x]]


def test_missing_lists_of_fixed_length_stay_in_their_rows() -> None:
    rows = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2))
    table = pa.table({"a": pa.concat_arrays([rows, rows]).slice(1, 4)})
    found = transformed(Hash("a"), table)
    assert found.schema.field("a").type == pa.list_(pa.int64(), 2)
    assert column(found, "a") == [None, [3, None], [1, 2], None]


def test_ids_are_those_of_training_and_of_the_criteo_reader(tmp_path: Any) -> None:
    texts = ["68fd1e64", "", "80e26c9b"]
    path = tmp_path / "log.txt"
    path.write_text("".join(f"1\t{text}\n" for text in texts))
    source = open_criteo(str(path), labels=["label"], dense_columns=0, id_columns=1)
    (batch,) = source.read(source.shards()[0], ["C1"])
    rows = pa.table({"C1": pa.array([text or None for text in texts])})
    found = transformed(Hash("C1"), rows)
    assert column(found, "C1") == batch["C1"].to_pylist()
    settings = Binding(inputs={"ids": "C1"})
    binder = Binder(settings, lambda ids: ids, Shape(("C1",)), expand=expand)
    jagged: Any = binder.read(rows.to_batches()[0])["C1"]
    assert [x for x in column(found, "C1") if x is not None] == jagged.ids.tolist()


@given(st.lists(st.tuples(texts, integers), min_size=1, max_size=6), st.none() | st.just(11))
@settings(max_examples=12)
def test_a_cross_combines_the_ids_of_its_columns(
    rows: list[tuple[str | None, int | None]], modulo: int | None
) -> None:
    names, numbers = zip(*rows, strict=True)
    table = pa.table({"t": pa.array(names, pa.string()), "n": pa.array(numbers, pa.int64())})
    found = column(transformed(Cross(["t", "n"], out="tn", modulo=modulo), table), "tn")
    for (text, number), got in zip(rows, found, strict=True):
        if text is None or number is None:
            assert got is None
        else:
            bits = combined([text_hash(text, "t"), number], "tn")
            assert got == (signed(bits) if modulo is None else bits % modulo)


def test_a_cross_has_the_bits_of_crosses_in_training() -> None:
    table = pa.table({"u": ["x", None, "y"], "h": [3, 4, None], "b": [True, False, True]})
    settings = Binding(inputs={"x": "uh"}, crosses={"uh": ("u", "h", "b")})
    binder = Binder(settings, lambda x: x, Shape(("u", "h", "b")), expand=expand)
    expected: Any = binder.read(table.to_batches()[0])["uh"]
    found = column(transformed(Cross(["u", "h", "b"], out="uh"), table), "uh")
    assert found[1:] == [None, None]
    assert expected.ids.tolist() == found[:1]


def test_a_list_of_one_is_crossed_as_its_item_and_an_empty_one_is_missing() -> None:
    table = pa.table({"a": [1, 2, 3, 4], "l": pa.array([["x"], [], None, ["y"]])})
    plain = pa.table({"a": [1, 2, 3, 4], "l": ["x", None, None, "y"]})
    found = [column(transformed(Cross(["a", "l"], out="c"), x), "c") for x in (table, plain)]
    assert found[0] == found[1]
    assert [x is None for x in found[0]] == [False, True, True, False]


def test_the_order_of_columns_and_the_name_are_part_of_a_cross() -> None:
    table = pa.table({"a": [1], "b": [2]})
    crosses = [Cross(["a", "b"], out="x"), Cross(["b", "a"], out="x"), Cross(["a", "b"], out="y")]
    found = [transformed(each, table)[each.out][0].as_py() for each in crosses]
    assert len(set(found)) == 3


def test_a_column_without_any_value_is_missing() -> None:
    table = pa.table({"a": pa.nulls(2), "b": [1, 2]})
    assert column(transformed(Hash("a"), table), "a") == [None, None]
    assert column(transformed(Cross(["a", "b"], out="c"), table), "c") == [None, None]


def test_the_statements_are_those_of_the_kernels() -> None:
    assert hash_texts(pa.array(["abc" * 9]), "s").tolist() == [signed(text_hash("abc" * 9, "s"))]
    assert combine([np.array([-5])], "s").tolist() == [signed(combined([-5], "s"))]


def test_only_what_is_needed_is_hashed() -> None:
    pipeline = Pipeline([Hash(["a", "b"], out="{}_id")]).fit({"a": ["x"], "b": ["y"]})
    bound = pipeline.bind(pa.schema({"a": pa.string()}), needed=["a_id"])
    assert "a_id" in bound.schema.names
    assert "b_id" not in bound.schema.names


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Hash("a", modulo=0), "modulo=0: Input should be greater than or equal to 1"),
        (lambda: Hash("a", modulo=1 << 63), "less than or equal to 9223372036854775807"),
        (lambda: Hash("a", modul=3), "unknown key 'modul'; did you mean 'modulo'?"),
        (lambda: Cross(["a", "b"]), "'out' is missing"),
        (lambda: Cross(["a", "b"], out=""), "out='': String should have at least 1 character"),
    ],
)
def test_wrong_settings_are_explained(make: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (Hash("x"), "hash: column 'x' holds double: give texts or integers, or Cast it first"),
        (Hash("nested"), "lists may hold values, and no other lists"),
        (Hash("aa"), "there is no column 'aa'; did you mean 'a'?"),
        (Cross(["a"], out="c"), "'c' is made of two columns or more, not of only a"),
        (Cross(["a", "x"], out="c"), "column 'x' holds double; give columns with one text"),
        (Cross(["a", "l"], out="c"), "column 'l' has several in row 0; give columns"),
        (Cross(["a", "nested"], out="c"), "column 'nested' holds list<item: list<item: int64>>"),
    ],
)
def test_wrong_columns_are_explained(operation: Any, message: str) -> None:
    rows = {"a": [1], "x": [1.5], "l": [[1, 2]], "nested": [[[1]]]}
    with pytest.raises(DataError) as error:
        Pipeline([operation]).fit(rows).transform(rows)
    assert message in str(error.value)
