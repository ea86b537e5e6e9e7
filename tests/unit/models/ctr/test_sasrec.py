import math

import pytest
import torch
from in_process import applied, ready, train
from torch import Tensor
from torch.nn.functional import cross_entropy, layer_norm

from flambeau.data.jagged import from_lists
from flambeau.embeddings.attach import tables_of
from flambeau.errors import ModelError
from flambeau.models import SASRec


def small(**changes: object) -> SASRec:
    torch.manual_seed(0)
    settings = {"embedding_dim": 4, "length": 3, "blocks": 1, "heads": 2, "dropout": 0.0}
    model = SASRec(**(settings | {"table": {"initializer": {"scale": 1.0}}} | changes))  # type: ignore[arg-type]
    torch.nn.init.normal_(model.nothing)
    ready(model)
    return model


def written_out(model: SASRec, history: list[int]) -> Tensor:
    """What the model makes of one history, by loops."""
    kept = history[-3:]
    rows = model.item_vectors(torch.tensor(kept))
    ages = [len(kept) - 1 - place for place in range(len(kept))]
    states = [2.0 * row + model.positions.weight[age] for row, age in zip(rows, ages, strict=True)]
    block = model.blocks[0]
    normed = [layer_norm(s, (4,), block.first_norm.weight, block.first_norm.bias) for s in states]
    parts = [block.parts.weight @ s + block.parts.bias for s in normed]
    last, out = len(kept) - 1, []
    for head in range(2):
        query, key, value = (slice(start + 2 * head, start + 2 * head + 2) for start in (0, 4, 8))
        scores = [parts[last][query] @ parts[j][key] / math.sqrt(2) for j in range(last + 1)]
        shares = torch.softmax(torch.stack(scores), 0)
        out.append(sum(share * parts[j][value] for j, share in enumerate(shares)))
    state = states[last] + block.joined.weight @ torch.cat(out) + block.joined.bias
    normed_state = layer_norm(state, (4,), block.second_norm.weight, block.second_norm.bias)
    state = state + applied(block.network, normed_state)
    return layer_norm(state, (4,), model.norm.weight, model.norm.bias)


@pytest.mark.parametrize("history", [[5], [5, 6, 5], [1, 2, 3, 4, 5]])
def test_the_formula(history: list[int]) -> None:
    model = small()
    users = model.user_vectors(from_lists([[7, 8, 9], history, []]))
    assert torch.allclose(users[1], written_out(model, history), atol=1e-5)
    assert torch.equal(users[2], model.nothing)


def test_scores_are_products_with_the_items_rows() -> None:
    model = small()
    history, items = from_lists([[1, 2], [3]]), torch.tensor([[4, 5, 6], [6, 5, 4]])
    users, rows = model.user_vectors(history), model.item_vectors(items)
    each = [[user @ row for row in own] for user, own in zip(users, rows, strict=True)]
    expected = torch.stack([torch.stack(row) for row in each])
    assert torch.allclose(model(history, items), expected, atol=1e-6)
    assert torch.allclose(model(history, items[:, 1]), expected[:, 1], atol=1e-6)


def test_items_before_the_last_few_and_padding_do_not_matter() -> None:
    model = small(padding=0)
    short = model.user_vectors(from_lists([[3, 4, 5], [6]]))
    long = model.user_vectors(from_lists([[1, 2, 3, 4, 5], [6]]))
    padded = model.user_vectors(torch.tensor([[0, 0, 3, 4, 5], [6, 0, 0, 0, 0]]))
    assert torch.equal(short, long)
    assert torch.allclose(short, padded, atol=1e-6)


def test_what_comes_later_does_not_change_what_came_before() -> None:
    model = small()
    rows, _ = model.history(from_lists([[1, 2, 3], [1, 2, 4]]))
    states = model.blocks[0](rows)
    assert torch.equal(states[0, :2], states[1, :2])
    assert not torch.equal(states[0, 2], states[1, 2])


def test_batches_without_any_history_give_all_weights_a_gradient() -> None:
    model = small()
    model(from_lists([[], []]), torch.tensor([1, 2])).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_there_is_one_table() -> None:
    assert [spec.name for spec in tables_of(SASRec())] == ["item"]


def test_ranking_all_candidates_gives_the_best_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flambeau.models.ctr.sasrec._AT_ONCE", 4)
    model, candidates = small(), torch.arange(10, 23)
    tables = ready(model)
    (model.item_vectors(candidates) * torch.randn(13, 4)).sum().backward()
    tables.step()
    model.eval()
    history = from_lists([[1, 2], []])
    ids, scores = model.rank(history, candidates, 3)
    all_scores = model.user_vectors(history) @ model.item_vectors(candidates).T
    best, places = all_scores.topk(3)
    assert torch.equal(ids, candidates[places])
    assert torch.allclose(scores, best, atol=1e-6)


def test_fewer_candidates_than_asked_for_are_all_given() -> None:
    ids, _ = small().eval().rank(from_lists([[1]]), torch.tensor([4, 5]), 10)
    assert sorted(ids[0].tolist()) == [4, 5]


def test_training_with_negatives_of_the_batch_lowers_the_loss() -> None:
    model = SASRec(8, 4, 1, 2, dropout=0.0, negatives="batch", temperature=0.3)
    history, item = from_lists([[1, 2], [3], [], [4, 5, 6]]), torch.tensor([11, 12, 13, 14])
    before, after = train(model, lambda: cross_entropy(model(history, item), torch.arange(4)))
    assert after < 0.8 * before


def test_training_with_given_negatives_lowers_the_loss() -> None:
    model = SASRec(8, 4, 1, 2, dropout=0.0)
    history, items = from_lists([[1, 2], [3]]), torch.tensor([[11, 12, 13], [14, 15, 11]])
    zeros = torch.zeros(2, dtype=torch.int64)
    before, after = train(model, lambda: cross_entropy(model(history, items), zeros))
    assert after < 0.8 * before


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ModelError, match="embedding_dim=6 is not a multiple of heads=4"):
        SASRec(6, heads=4)
    with pytest.raises(ModelError, match="negatives='none'"):
        SASRec(negatives="none")  # type: ignore[arg-type]
