"""Each model against its formula, written with loops over rows, fields and pairs."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from tiny_clicks import DENSE, DIM, FIELDS, Tiny, tiny

Formula = Callable[[Tiny, int], float]


def softmax(scores: np.ndarray) -> np.ndarray:
    return np.exp(scores) / np.exp(scores).sum()


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lr(case: Tiny, row: int) -> float:
    return case.first_order(row)


def fm_pairs(case: Tiny, row: int) -> float:
    return sum(float(a @ b) for a, b in combinations(case.rows[row], 2))


def fm(case: Tiny, row: int) -> float:
    return case.first_order(row) + fm_pairs(case, row)


def ffm(case: Tiny, row: int) -> float:
    total = case.first_order(row)
    toward = case.rows[row].reshape(FIELDS, FIELDS, DIM)
    for i, j in combinations(range(FIELDS), 2):
        total += float(toward[i, j] @ toward[j, i])
    return total


def wide_and_deep(case: Tiny, row: int) -> float:
    deep = case.perceptron("deep", case.flat(row))
    return case.first_order(row, "wide") + float(deep[0])


def deepfm(case: Tiny, row: int) -> float:
    deep = case.perceptron("deep", case.flat(row))
    return case.first_order(row) + fm_pairs(case, row) + float(deep[0])


def output(case: Tiny, x: np.ndarray) -> float:
    return float(case.weights["output.weight"][0] @ x + case.weights["output.bias"][0])


def dcn(case: Tiny, row: int) -> float:
    x0 = x = case.flat(row)
    for weight, bias in zip(
        case.weights["cross.weights"], case.weights["cross.biases"], strict=True
    ):
        x = x0 * float(x @ weight) + bias + x
    deep = case.perceptron("deep", x0, last_is_plain=False)
    return output(case, np.concatenate([x, deep]))


def crossed(case: Tiny, x0: np.ndarray) -> np.ndarray:
    x = x0
    for layer in range(2):
        name = f"cross.layers.{layer}"
        x = x0 * (case.weights[f"{name}.weight"] @ x + case.weights[f"{name}.bias"]) + x
    return x


def dcnv2(case: Tiny, row: int) -> float:
    x0 = case.flat(row)
    deep = case.perceptron("deep", x0, last_is_plain=False)
    return output(case, np.concatenate([crossed(case, x0), deep]))


def dcnv2_stacked(case: Tiny, row: int) -> float:
    x = crossed(case, case.flat(row))
    return output(case, case.perceptron("deep", x, last_is_plain=False))


def dcnv2_low_rank(case: Tiny, row: int) -> float:
    x0 = x = case.flat(row)
    for layer in range(2):
        down = case.weights[f"cross.layers.{layer}.0.weight"]
        up = case.weights[f"cross.layers.{layer}.1.weight"]
        x = x0 * (up @ (down @ x) + case.weights[f"cross.layers.{layer}.1.bias"]) + x
    deep = case.perceptron("deep", x0, last_is_plain=False)
    return output(case, np.concatenate([x, deep]))


def xdeepfm(*sizes: int) -> Formula:
    def formula(case: Tiny, row: int) -> float:
        before, sums = case.rows[row], []
        for layer, maps in enumerate(sizes):
            weight = case.weights[f"cin.weights.{layer}"].reshape(maps, len(before), FIELDS)
            now = np.zeros((maps, DIM))
            for h in range(maps):
                for i in range(len(before)):
                    for j in range(FIELDS):
                        now[h] += weight[h, i, j] * before[i] * case.rows[row, j]
            sums += [float(each.sum()) for each in now]
            before = now
        cin = float(case.weights["cin_output.weight"][0] @ sums)
        deep = float(case.perceptron("deep", case.flat(row))[0])
        return case.first_order(row) + cin + deep

    return formula


def inner(case: Tiny, row: int) -> list[float]:
    return [float(a @ b) for a, b in combinations(case.rows[row], 2)]


def outer(case: Tiny, row: int) -> np.ndarray:
    total = np.zeros((DIM, DIM))
    for a in case.rows[row]:
        for b in case.rows[row]:
            total += np.outer(a, b)
    return total.ravel()


def pnn_with(*products: Callable[[Tiny, int], Any]) -> Formula:
    def formula(case: Tiny, row: int) -> float:
        found = [product(case, row) for product in products]
        x = np.concatenate([case.rows[row].ravel(), *found, case.dense[row]])
        return float(case.perceptron("deep", x)[0])

    return formula


def afm(case: Tiny, row: int) -> float:
    products = [a * b for a, b in combinations(case.rows[row], 2)]
    weight, bias = case.weights["attention.weight"], case.weights["attention.bias"]
    score = case.weights["score.weight"][0]
    attention = softmax(np.array([score @ np.maximum(weight @ p + bias, 0) for p in products]))
    pooled = sum(a * p for a, p in zip(attention, products, strict=True))
    return case.first_order(row) + float(case.weights["output"] @ pooled)


def attended(case: Tiny, name: str, x: np.ndarray, heads: int, scaled: bool) -> np.ndarray:
    query, key, value, rest = (
        case.weights[f"{name}.{part}.weight"] for part in ("query", "key", "value", "residual")
    )
    size = len(query) // heads
    out = []
    for i in range(len(x)):
        seen = []
        for h in range(heads):
            part = slice(h * size, (h + 1) * size)
            scores = [float((query[part] @ x[i]) @ (key[part] @ each)) for each in x]
            attention = softmax(np.array(scores) / (np.sqrt(size) if scaled else 1.0))
            seen += list(sum(a * (value[part] @ e) for a, e in zip(attention, x, strict=True)))
        out.append(np.maximum(np.array(seen) + rest @ x[i], 0))
    return np.stack(out)


def autoint(case: Tiny, row: int) -> float:
    vectors = case.weights["dense_vectors.vectors"]
    numbers = [case.dense[row, at] * vectors[at] for at in range(DENSE)]
    x = np.stack([*case.rows[row], *numbers])
    for layer in range(2):
        x = attended(case, f"attention.{layer}", x, heads=2, scaled=False)
    return output(case, x.ravel())


def autoint_plus(case: Tiny, row: int) -> float:
    return autoint(case, row) + float(case.perceptron("deep", case.flat(row))[0])


def field_attention(heads: int) -> Formula:
    def formula(case: Tiny, row: int) -> float:
        seen = attended(case, "attention", case.rows[row], heads, scaled=True)
        x = np.concatenate([seen.ravel(), case.dense[row]])
        return case.first_order(row) + float(case.perceptron("deep", x)[0])

    return formula


def dlrm(case: Tiny, row: int) -> float:
    z = case.perceptron("bottom", case.dense[row], last_is_plain=False)
    products = [float(a @ b) for a, b in combinations([z, *case.rows[row]], 2)]
    return float(case.perceptron("top", np.concatenate([z, products]))[0])


def final_mlp(contexts: tuple[list[int], list[int]]) -> Formula:
    def stream(case: Tiny, row: int, number: int) -> np.ndarray:
        fields = contexts[number]
        learnt = case.weights.get(f"gates.{number}.learnt", np.zeros((1, 0)))[0]
        context = np.concatenate([case.rows[row, field] for field in fields] or [learnt])
        gate = 2 * sigmoid(case.perceptron(f"gates.{number}.weigh", context))
        return case.perceptron(f"streams.{number}", gate * case.flat(row), last_is_plain=False)

    def formula(case: Tiny, row: int) -> float:
        u, v = stream(case, row, 0), stream(case, row, 1)
        total = float(case.weights["fusion.first.bias"][0])
        total += float(case.weights["fusion.first.weight"][0] @ u)
        total += float(case.weights["fusion.second.weight"][0] @ v)
        for head, weight in enumerate(case.weights["fusion.weights"]):
            total += float(u[head * 2 : head * 2 + 2] @ weight @ v[head * 3 : head * 3 + 3])
        return total

    return formula


@pytest.mark.parametrize(
    ("name", "args", "formula"),
    [
        ("lr", {}, lr),
        ("fm", {}, fm),
        ("ffm", {}, ffm),
        ("wide_and_deep", {}, wide_and_deep),
        ("deepfm", {}, deepfm),
        ("dcn", {}, dcn),
        ("dcnv2", {}, dcnv2),
        ("dcnv2", {"structure": "stacked"}, dcnv2_stacked),
        ("dcnv2", {"rank": 3}, dcnv2_low_rank),
        ("xdeepfm", {"cin": (2,)}, xdeepfm(2)),
        ("xdeepfm", {"cin": (3, 2)}, xdeepfm(3, 2)),
        ("xdeepfm", {"cin": (3, 4, 2)}, xdeepfm(3, 4, 2)),
        ("pnn", {}, pnn_with(inner)),
        ("pnn", {"product": "outer"}, pnn_with(outer)),
        ("pnn", {"product": "both"}, pnn_with(inner, outer)),
        ("afm", {}, afm),
        ("autoint", {}, autoint),
        ("autoint", {"hidden": (4,)}, autoint_plus),
        ("dlrm", {}, dlrm),
        ("final_mlp", {}, final_mlp(([], []))),
        ("final_mlp", {"contexts": ([0], [2, 1])}, final_mlp(([0], [2, 1]))),
        ("field_attention", {"heads": 1}, field_attention(1)),
        ("field_attention", {"heads": 2}, field_attention(2)),
    ],
)
def test_a_model_computes_its_formula(name: str, args: dict[str, Any], formula: Formula) -> None:
    case = tiny(name, **args)
    expected = [formula(case, row) for row in range(len(case.ids))]
    assert np.abs(np.diff(expected)).min() > 1e-6, "the rows do not differ"
    np.testing.assert_allclose(case.logits(), expected, rtol=1e-9, atol=1e-9)
