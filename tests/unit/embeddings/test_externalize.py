"""Moving the embeddings of a model into tables."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from flambeau.config.optimizer import optim
from flambeau.embeddings import SparseEmbedding, externalize, train_in_process
from flambeau.embeddings.attach import tables_of
from flambeau.embeddings.external import initial_rows
from flambeau.errors import ModelError

IDS = torch.tensor([[1, 4, 1], [0, 2, 9]])


def holder(module: nn.Module) -> nn.Module:
    return nn.ModuleDict({"encoder": nn.ModuleDict({"item": module})})


def replaced(module: nn.Module, **fields: Any) -> Any:
    return externalize(holder(module), **fields)["encoder"]["item"]  # type: ignore[index]


def test_a_table_is_named_by_its_path_and_begins_with_the_weights() -> None:
    embedding = nn.Embedding(10, 4)
    model = externalize(holder(embedding), optimizer=optim("sgd", lr=0.1))
    (spec,) = tables_of(model)
    assert (spec.name, spec.dim, spec.dtype, spec.trainable) == ("encoder.item", 4, "fp32", True)
    assert spec.optimizer == optim("sgd", lr=0.1)
    ((same, ids, values),) = initial_rows(model)
    assert same == spec
    assert ids.tolist() == list(range(10))
    assert torch.equal(torch.from_numpy(values), embedding.weight.detach())


def test_it_changes_the_model_it_is_given() -> None:
    model = holder(nn.Embedding(10, 4))
    assert externalize(model) is model
    assert not list(model.parameters())


def test_small_embeddings_stay() -> None:
    model = nn.ModuleList([nn.Embedding(9, 2), nn.Embedding(10, 2)])
    externalize(model, min_rows=10)
    assert [spec.name for spec in tables_of(model)] == ["1"]
    assert isinstance(model[0], nn.Embedding)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("attach", [False, True])
def test_results_are_those_of_the_original(attach: bool, dtype: torch.dtype) -> None:
    embedding = nn.Embedding(10, 4, dtype=dtype)
    stand_in = replaced(embedding)
    if attach:
        train_in_process(stand_in)
    for ids in (IDS, IDS.int(), IDS[:0]):
        found = stand_in.eval()(ids)
        assert found.dtype is dtype
        assert torch.equal(found, embedding(ids))


BAG_CALLS: dict[str, Callable[[Any], Tensor]] = {
    "rows": lambda bag: bag(IDS),
    "int32": lambda bag: bag(IDS.int()),
    "offsets": lambda bag: bag(IDS.flatten(), torch.tensor([0, 2, 2, 6])),
    "keywords": lambda bag: bag(input=IDS.flatten(), offsets=torch.tensor([0, 6])),
    "int32 offsets": lambda bag: bag(IDS.flatten().int(), torch.tensor([0, 6]).int()),
}


@pytest.mark.parametrize("attach", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("call", BAG_CALLS)
def test_bags_are_called_as_before(call: str, mode: str, attach: bool) -> None:
    bag = nn.EmbeddingBag(10, 4, mode=mode, include_last_offset=True, dtype=torch.float64)
    stand_in = replaced(bag).eval()
    if attach:
        train_in_process(stand_in)
    torch.testing.assert_close(BAG_CALLS[call](stand_in), BAG_CALLS[call](bag))


@pytest.mark.parametrize("attach", [False, True])
def test_weights_of_samples_count_as_before(attach: bool) -> None:
    bag = nn.EmbeddingBag(10, 4, mode="sum")
    stand_in = replaced(bag).eval()
    if attach:
        train_in_process(stand_in)
    weights = torch.rand(2, 3)
    found = stand_in(IDS, per_sample_weights=weights)
    torch.testing.assert_close(found, bag(IDS, per_sample_weights=weights))


def test_flat_input_without_offsets_is_refused_as_by_torch() -> None:
    with pytest.raises(ModelError, match=r"input has shape \(3,\).*1-D input and offsets"):
        replaced(nn.EmbeddingBag(10, 4))(IDS[0])


@pytest.mark.parametrize("wrong", [-1, 10])
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_an_id_without_a_row_is_refused_as_by_torch(kind: Any, wrong: int) -> None:
    stand_in = replaced(kind(10, 4))
    train_in_process(stand_in)
    with pytest.raises(ModelError, match=f"'encoder.item': id {wrong} is out of range.*0 to 9"):
        stand_in(torch.tensor([[0, wrong]]))


def test_the_padding_row_does_not_learn() -> None:
    embedding = nn.Embedding(10, 4, padding_idx=2)
    with torch.no_grad():
        embedding.weight[2] = 5.0
    stand_in = replaced(embedding)
    handle = train_in_process(stand_in, optim("adam", lr=0.1))
    stand_in(IDS).sum().backward()
    handle.step()
    after = stand_in.eval()(torch.arange(10))
    moved = (after != embedding.weight.detach()).any(1)
    assert moved.nonzero().flatten().tolist() == [0, 1, 4, 9]


def test_frozen_weights_become_a_table_that_does_not_learn() -> None:
    embedding = nn.Embedding(10, 4).requires_grad_(False)
    stand_in = replaced(embedding, optimizer=optim("sgd"))
    train_in_process(stand_in)
    assert not tables_of(stand_in)[0].trainable
    assert not stand_in(IDS).requires_grad
    assert torch.equal(stand_in(IDS), embedding(IDS))


def test_a_module_at_two_places_stays_one_module() -> None:
    shared = nn.Embedding(10, 4)
    model = externalize(nn.ModuleList([shared, shared]))
    assert model[0] is model[1]  # type: ignore[index]
    assert [spec.name for spec in tables_of(model)] == ["0"]


def test_evaluation_mode_is_kept() -> None:
    assert not replaced(nn.Embedding(10, 4).eval()).training


def test_weights_travel_with_a_pickled_model_but_are_not_its_state() -> None:
    embedding = nn.Embedding(10, 4)
    twin = pickle.loads(pickle.dumps(replaced(embedding))).eval()
    assert torch.equal(twin(IDS), embedding(IDS))
    assert not twin.state_dict()


def test_without_a_table_it_cannot_train_either() -> None:
    with pytest.raises(ModelError, match=r"'encoder\.item' is not attached"):
        replaced(nn.Embedding(10, 4))(IDS)


class Own(nn.Embedding):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def tied() -> nn.Module:
    model = nn.ModuleDict({"item": nn.Embedding(10, 4), "out": nn.Linear(4, 10, bias=False)})
    model["out"].weight = model["item"].weight
    return model


def tied_through_memory() -> nn.Module:
    model = tied()
    model["out"].weight = nn.Parameter(model["item"].weight.detach())  # type: ignore[index]
    return model


def hooked() -> nn.Module:
    embedding = nn.Embedding(10, 4)
    embedding.register_forward_hook(lambda module, given, found: 2 * found)
    return holder(embedding)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (tied, "its weight is used elsewhere"),
        (tied_through_memory, "its weight is used elsewhere"),
        (hooked, "it has hooks"),
        (lambda: holder(Own(10, 4)), "a forward of its own"),
        (lambda: holder(parametrizations.weight_norm(nn.Embedding(10, 4))), "is parametrized"),
        (lambda: holder(nn.Embedding(10, 4, max_norm=1.0)), "max_norm"),
        (lambda: holder(nn.EmbeddingBag(10, 4, max_norm=1.0)), "max_norm"),
        (lambda: holder(nn.Embedding(10, 4, scale_grad_by_freq=True)), "scale_grad_by_freq"),
        (lambda: holder(nn.EmbeddingBag(10, 4, padding_idx=1)), "padding_idx"),
        (lambda: holder(nn.Embedding(10, 4, dtype=torch.complex64)), "torch.complex64"),
    ],
)
def test_what_a_table_cannot_stand_in_for_is_refused(
    build: Callable[[], nn.Module], reason: str
) -> None:
    with pytest.raises(ModelError, match=rf"item' cannot become a table: .*{reason}.*min_rows"):
        externalize(build())


def test_a_refusal_changes_nothing() -> None:
    model = nn.ModuleList([nn.Embedding(10, 4), nn.Embedding(10, 4, max_norm=1.0)])
    with pytest.raises(ModelError):
        externalize(model)
    assert isinstance(model[0], nn.Embedding)


def test_an_embedding_alone_is_refused() -> None:
    with pytest.raises(ModelError, match="the model is itself an embedding"):
        externalize(nn.Embedding(10, 4))


def test_sparse_gradients_are_no_reason_to_refuse() -> None:
    assert isinstance(replaced(nn.Embedding(10, 4, sparse=True)).rows, SparseEmbedding)
