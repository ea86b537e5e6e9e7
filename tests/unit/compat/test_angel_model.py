"""Angel's models as modules: their batches, their gradients, their files."""

import warnings

import cloudpickle
import pytest
import torch
from angel_modules import (
    DIM,
    FIELDS,
    INPUT_DIM,
    MODULES,
    BiasWeight,
    Field,
    Mats,
    OptionalFields,
    saved,
)
from torch import nn

import flambeau as fb
from flambeau.compat.angel import load, torchscript
from flambeau.compat.angel.saved import load_dense
from flambeau.config import Binding
from flambeau.data.batch import Batch
from flambeau.data.jagged import Jagged
from flambeau.embeddings import train_in_process
from flambeau.errors import DataError, ModelError

ROWS = 64


def batch(rows: int = ROWS) -> Batch:
    """Two ids in each row, one for each field; the label follows from them."""
    chosen = torch.Generator().manual_seed(1)
    first = torch.randint(0, 6, (rows,), generator=chosen)
    second = torch.randint(6, INPUT_DIM, (rows,), generator=chosen)
    ids, fields = torch.stack([first, second], 1).view(-1), torch.arange(FIELDS).repeat(rows)
    values = torch.where(fields == 0, 1.0, 0.5)
    bags = Jagged(ids, torch.arange(rows + 1) * FIELDS, values, fields)
    label = (first % 2 == second % 2) | (first > 3)
    return Batch({"features": bags, "label": label.long()}, rows)


def train(model, steps: int) -> list[float]:
    tables = train_in_process(model, fb.optim("adam", lr=0.05))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    data, losses = batch(), []
    for _ in range(steps):
        loss = model.loss(model(data["features"]), data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tables.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("kind", MODULES)
def test_training_moves_rows_bias_and_mats(kind, tmp_path):
    model = load(saved(kind(), tmp_path))
    before = {name: value.clone() for name, value in model.dense().items()}
    losses = train(model, 20)
    assert losses[-1] < losses[0]
    assert all(not torch.equal(before[name], value) for name, value in model.dense().items())
    with torch.no_grad():
        rows = model.eval().weights(torch.arange(INPUT_DIM))
    assert (rows != 0).all()


@pytest.mark.parametrize("encode", ["onehot", "multihot"])
@pytest.mark.parametrize("shape", [(1, -1), (-1,), (-1, 1)])
def test_outputs_of_any_shape_are_one_for_each_row(encode, shape, tmp_path):
    model = load(saved(trained(OptionalFields(encode, shape, INPUT_DIM)), tmp_path)).eval()
    expected = load(saved(trained(Field(INPUT_DIM)), tmp_path)).eval()
    data = batch(5)
    found = model(data["features"])
    assert found.shape == (5,)
    assert torch.allclose(found, expected(data["features"]))
    assert torch.isfinite(model.loss(found, data))


def test_a_batch_goes_to_forward_as_coordinates(tmp_path):
    bags = Jagged(torch.tensor([3, 5, 3]), torch.tensor([0, 2, 2, 3]), torch.tensor([1.0, 2, 4]))
    model = load(saved(trained(BiasWeight(rows=INPUT_DIM)), tmp_path)).eval()
    weights = torch.arange(INPUT_DIM) / 10
    expected = torch.sigmoid(torch.stack([weights[3] + 2 * weights[5], weights[0], 4 * weights[3]]))
    with torch.no_grad():
        assert torch.allclose(model(bags), expected)


def trained(module: nn.Module) -> nn.Module:
    module.weights.data = torch.arange(INPUT_DIM).view(-1, 1) / 10
    return module


def test_ids_without_values_count_once(tmp_path):
    model = load(saved(trained(BiasWeight(rows=INPUT_DIM)), tmp_path)).eval()
    with torch.no_grad():
        assert torch.allclose(model(torch.tensor([[1, 2]])), torch.sigmoid(torch.tensor([0.3])))


def test_a_trained_file_goes_on_from_its_rows(tmp_path):
    model = load(saved(trained(BiasWeight(rows=INPUT_DIM)), tmp_path))
    assert model.begins_trained
    train_in_process(model, fb.optim("sgd", lr=0.1))
    with torch.no_grad():
        assert model.eval().weights(torch.tensor([7])).item() == pytest.approx(0.7)


def test_a_placeholder_is_not_taken_for_rows(tmp_path):
    module = BiasWeight()
    module.weights.data = torch.arange(10.0).view(-1, 1)
    model = load(saved(module, tmp_path))
    assert not model.begins_trained
    with torch.no_grad():
        assert (model.eval().weights(torch.arange(INPUT_DIM)) == 0).all()


def test_a_model_travels_by_value(tmp_path):
    model = load(saved(trained(BiasWeight(rows=INPUT_DIM)), tmp_path)).eval()
    copy, loss = cloudpickle.loads(cloudpickle.dumps((model, model.loss)))
    data = batch(4)
    with torch.no_grad():
        assert torch.equal(copy(data["features"]), model(data["features"]))
        expected = model.loss(model(data["features"]), data)
        assert torch.equal(loss(copy(data["features"]), data), expected)


def test_the_scripted_module_follows_into_evaluation_mode(tmp_path):
    class WithDropout(BiasWeight):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

    model = load(saved(WithDropout(), tmp_path))
    assert model._scripted.module.training
    model.eval()
    assert not model._scripted.module.drop.training


def test_its_loss_tells_metrics_that_outputs_are_probabilities(tmp_path):
    from flambeau.training.losses import build_loss

    model = load(saved(BiasWeight(), tmp_path))
    assert build_loss(model.loss).name == "bce_prob"


def test_its_loss_refuses_labels_that_are_not_0_and_1(tmp_path):
    model, data = load(saved(BiasWeight(), tmp_path)), batch(2)
    labelled = Batch({**data.columns, "label": torch.tensor([1.0, -1.0])}, 2)
    with pytest.raises(DataError, match=r"label -1 .*label_map=.-1: 0, 1: 1."):
        model.loss(torch.full((2,), 0.5), labelled)


def test_an_id_beyond_input_dim_says_how_to_get_more(tmp_path):
    model = load(saved(BiasWeight(), tmp_path)).eval()
    with pytest.raises(DataError, match=r"id 12 .*input_dim=12.*--input_dim 13"):
        model(torch.tensor([[12]]))
    with pytest.raises(DataError, match="id -1 "):
        model(torch.tensor([[-1]]))


def test_a_row_with_another_number_of_ids_is_named(tmp_path):
    model = load(saved(Mats(), tmp_path)).eval()
    bags = Jagged(torch.tensor([1, 7, 2]), torch.tensor([0, 2, 3]))
    with pytest.raises(DataError, match="n_fields=2, but row 1 of the batch has 1 id"):
        model(bags)


def test_a_model_of_fields_needs_fields(tmp_path):
    with pytest.raises(DataError, match=r"needs the field of each id.*libffm"):
        load(saved(Field(), tmp_path)).eval()(torch.tensor([[1, 7]]))


def test_an_output_for_other_rows_is_refused(tmp_path):
    class Sum(BiasWeight):
        def forward_(
            self,
            batch_size: int,
            index: torch.Tensor,
            feats: torch.Tensor,
            values: torch.Tensor,
            bias: torch.Tensor,
            weights: torch.Tensor,
        ) -> torch.Tensor:
            return values.sum().view(1)

    with pytest.raises(ModelError, match=r"gave \[1\] for 2 rows"):
        load(saved(Sum(), tmp_path)).eval()(torch.tensor([[1], [2]]))


def test_only_the_deprecation_of_torchscript_is_filtered():
    with torchscript.without_deprecation(), pytest.raises(DeprecationWarning, match="other"):
        warnings.warn("other things are deprecated", DeprecationWarning, stacklevel=1)


def test_dense_weights_of_another_model_are_refused(tmp_path):
    from flambeau.compat.angel.saved import write_folder

    write_folder({"bias": torch.zeros(2)}, {}, tmp_path)
    with pytest.raises(DataError, match="is of another model"):
        load_dense({"bias": torch.zeros(1)}, tmp_path)


def test_a_folder_without_tables_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has no weights\.parquet"):
        load(saved(BiasWeight(), tmp_path), tmp_path)


def test_columns_are_bound_by_their_names(tmp_path):
    from flambeau.data.binding import Binder, Shape

    model = load(saved(BiasWeight(), tmp_path))
    binder = Binder(Binding(label="label"), model.forward, Shape(("label", "features")))
    assert binder.arguments(batch(2))[1].keys() == {"features"}


def test_embeddings_begin_different_from_each_other(tmp_path):
    model = load(saved(Mats(), tmp_path))
    train_in_process(model, fb.optim("sgd", lr=0.1))
    rows = model.embedding(torch.arange(2))
    assert rows.shape == (2, DIM)
    assert not torch.equal(rows[0], rows[1])
