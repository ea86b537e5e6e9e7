"""Losses: their values, how labels are fitted to outputs, and what is refused."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from flambeau.data.batch import Batch
from flambeau.errors import ConfigError, DataError, ModelError
from flambeau.training.losses import build_loss

NAN = float("nan")


def batch(rows: int, **columns: torch.Tensor) -> Batch:
    return Batch(columns, rows)


ELEMENTWISE = {
    "bce": F.binary_cross_entropy_with_logits,
    "bce_prob": F.binary_cross_entropy,
    "mse": F.mse_loss,
    "mae": F.l1_loss,
    "huber": F.huber_loss,
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_loss_aligns_rows_by_1_with_labels_of_rows(name):
    output, label = torch.rand(5, 1), torch.tensor([0, 1, 1, 0, 1])
    expected = ELEMENTWISE[name](output[:, 0], label.float())
    torch.testing.assert_close(build_loss(name)(output, batch(5), label, None), expected)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_several_labels_per_row_are_averaged(name):
    output, label = torch.rand(5, 3), torch.rand(5, 3)
    expected = ELEMENTWISE[name](output, label, reduction="none").mean(1)
    torch.testing.assert_close(build_loss(name).per_row(output, label), expected)


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.float64])
def test_cross_entropy_takes_labels_of_any_number_type(shape, dtype):
    output, label = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    value = build_loss("cross_entropy")(output, batch(4), label.reshape(shape).to(dtype), None)
    torch.testing.assert_close(value, F.cross_entropy(output, label))


def test_nll_takes_log_probabilities():
    output, label = torch.randn(4, 3).log_softmax(1), torch.tensor([0, 2, 1, 1])
    torch.testing.assert_close(
        build_loss("nll")(output, batch(4), label, None), F.nll_loss(output, label)
    )


def test_cross_entropy_of_images_is_averaged_per_row():
    output, label = torch.randn(2, 3, 4, 4), torch.randint(3, (2, 4, 4))
    expected = F.cross_entropy(output, label, reduction="none").mean((1, 2))
    torch.testing.assert_close(build_loss("cross_entropy").per_row(output, label), expected)


def test_weighted_loss_is_divided_by_the_number_of_rows():
    output, label = torch.zeros(4), torch.tensor([2.0, 2.0, 2.0, 2.0])
    weight = torch.tensor([1.0, 0.0, 0.0, 3.0])
    assert build_loss("mse")(output, batch(4), label, weight) == 4.0


def test_rows_without_a_label_count_0_and_have_no_gradient():
    output = torch.zeros(4, requires_grad=True)
    loss = build_loss("mse")(output, batch(4), torch.tensor([2.0, NAN, NAN, 2.0]), None)
    loss.backward()
    assert loss == 2.0
    assert output.grad.tolist() == [-1.0, 0.0, 0.0, -1.0]


def test_cross_entropy_rows_without_a_label_count_0():
    loss = build_loss("cross_entropy")(torch.zeros(2, 3), batch(2), torch.tensor([1.0, NAN]), None)
    torch.testing.assert_close(loss, torch.tensor(3.0).log() / 2)


@pytest.mark.parametrize(
    ("name", "shape"), [("bce", (0, 1)), ("cross_entropy", (0, 3)), ("mse", (0,))]
)
def test_an_empty_batch_gives_0_that_can_be_differentiated(name, shape):
    output = torch.zeros(shape, requires_grad=True)
    loss = build_loss(name)(output, batch(0), torch.zeros(0), None)
    loss.backward()
    assert loss == 0.0


def test_half_precision_outputs_are_computed_in_float32():
    output = torch.zeros(2, dtype=torch.bfloat16)
    loss = build_loss("mse")(output, batch(2), torch.tensor([1.001, 1.001]), None)
    assert loss.item() == pytest.approx(1.002001)


def test_unknown_loss_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'cross_entropy'"):
        build_loss("crossentropy")


def test_cross_entropy_of_one_column_names_the_shapes():
    expected = r"needs an output of \[rows, classes\] .* gave \[32, 1\] for labels of \[32\]"
    with pytest.raises(ModelError, match=expected):
        build_loss("cross_entropy")(torch.zeros(32, 1), batch(32), torch.zeros(32), None)


def test_elementwise_loss_does_not_broadcast():
    with pytest.raises(ModelError, match=r"'mse' .* gave \[4, 3\] for labels of \[4\]"):
        build_loss("mse")(torch.zeros(4, 3), batch(4), torch.zeros(4), None)


@pytest.mark.parametrize("bad", [3, -1])
def test_cross_entropy_label_out_of_range_is_named_with_its_row(bad):
    label = torch.tensor([0, 2, bad, 1])
    with pytest.raises(DataError, match=f"label {bad} in row 2 .* 3 classes, .* 0 to 2"):
        build_loss("cross_entropy")(torch.zeros(4, 3), batch(4), label, None)


def test_bce_refuses_labels_other_than_0_to_1():
    with pytest.raises(DataError, match="label -1 in row 1"):
        build_loss("bce")(torch.zeros(2), batch(2), torch.tensor([1, -1]), None)


def test_bce_prob_refuses_logits():
    with pytest.raises(ModelError, match=r"gave -2\. .*use loss='bce'"):
        build_loss("bce_prob")(torch.tensor([-2.0]), batch(1), torch.tensor([1.0]), None)


def test_named_loss_needs_a_label():
    with pytest.raises(ModelError, match="needs label="):
        build_loss("bce")(torch.zeros(2), batch(2), None, None)


def test_named_loss_needs_one_tensor():
    with pytest.raises(ModelError, match="it gave a tuple"):
        build_loss("bce")((torch.zeros(2),), batch(2), torch.zeros(2), None)


def test_torch_loss_is_called_with_output_and_label():
    output, label = torch.randn(4, 3), torch.tensor([0.0, 2.0, 1.0, 1.0])
    module = nn.CrossEntropyLoss(label_smoothing=0.1)
    loss = build_loss(module)(output, batch(4), label[:, None], None)
    torch.testing.assert_close(loss, module(output, label.long()))


def test_torch_bce_loss_takes_integer_labels_of_rows():
    output, label = torch.randn(4, 1), torch.tensor([0, 1, 1, 0])
    loss = build_loss(nn.BCEWithLogitsLoss())(output, batch(4), label, None)
    torch.testing.assert_close(loss, F.binary_cross_entropy_with_logits(output[:, 0], label * 1.0))


def test_torch_loss_without_reduction_is_weighted():
    weight = torch.tensor([1.0, 3.0])
    loss = build_loss(nn.MSELoss(reduction="none"))
    assert loss(torch.zeros(2, 1), batch(2), torch.tensor([1.0, 2.0]), weight) == 6.5


def test_torch_loss_without_reduction_leaves_out_missing_labels():
    loss = build_loss(nn.MSELoss(reduction="none"))
    assert loss(torch.zeros(2, 1), batch(2), torch.tensor([NAN, 2.0]), None) == 2.0


@pytest.mark.parametrize(
    ("label", "weight"),
    [(torch.zeros(2), torch.ones(2)), (torch.tensor([0.0, NAN]), None)],
    ids=["weights", "missing labels"],
)
def test_averaging_torch_loss_refuses(label, weight):
    with pytest.raises(ModelError, match=r'MSELoss\(reduction="none"\)'):
        build_loss(nn.MSELoss())(torch.zeros(2), batch(2), label, weight)


def test_loss_class_instead_of_instance_is_refused():
    with pytest.raises(ConfigError, match="give MSELoss"):
        build_loss(nn.MSELoss)


def test_function_loss_gets_output_and_batch():
    loss = build_loss(lambda output, rows: (output * rows["a"]).sum())
    assert loss(torch.ones(2), batch(2, a=torch.tensor([1.0, 2.0])), None, None) == 3.0


def test_function_loss_of_each_row_is_weighted_and_averaged():
    loss = build_loss(lambda output, rows: output**2)
    assert loss(torch.tensor([1.0, 2.0]), batch(2), None, torch.tensor([1.0, 2.0])) == 4.5


def test_function_loss_that_gives_something_else_is_refused():
    with pytest.raises(ModelError, match=r"each of the 3 rows; it gave a tensor of shape \[2\]"):
        build_loss(lambda output, rows: torch.zeros(2))(None, batch(3), None, None)


def test_named_losses_and_torchs_losses_of_values_have_a_name():
    losses = ("bce", nn.MSELoss(), nn.BCELoss(), nn.BCEWithLogitsLoss(), None, {"a": "mse"})
    names = [build_loss(loss).name for loss in losses]
    assert names == ["bce", "mse", "bce_prob", None, None, None]


@pytest.mark.parametrize("as_tuple", [False, True])
def test_losses_of_tasks_are_summed(as_tuple):
    click, price = torch.randn(4, 1), torch.randn(4)
    label = {"click": torch.tensor([0, 1, NAN, 1]), "price": torch.randn(4)}
    output = (click, price) if as_tuple else {"price": price, "click": click}
    loss = build_loss({"price": "mse", "click": "bce"})(output, batch(4), label, None)
    known = [0, 1, 3]
    clicks = F.binary_cross_entropy_with_logits(
        click[known, 0], label["click"][known], reduction="sum"
    )
    torch.testing.assert_close(loss, clicks / 4 + F.mse_loss(price, label["price"]))


def test_tasks_without_matching_outputs_are_refused():
    label = {"a": torch.zeros(2), "b": torch.zeros(2)}
    with pytest.raises(ModelError, match=r"\['a', 'b'\] need a model .* gave a tensor"):
        build_loss({"a": "mse", "b": "mse"})(torch.zeros(2), batch(2), label, None)


def test_tasks_that_the_model_does_not_have_are_answered_with_those_it_has():
    label = {"click": torch.zeros(2), "buy": torch.zeros(2)}
    output = {"click": torch.zeros(2), "conversion": torch.zeros(2)}
    message = r"name the tasks \['click', 'buy'\], but the model gives \['click', 'conversion'\]"
    with pytest.raises(ModelError, match=message):
        build_loss({"click": "bce", "buy": "bce"})(output, batch(2), label, None)


def test_tasks_without_matching_labels_are_refused():
    with pytest.raises(ModelError, match=r"\['a', 'b'\].*it gives \['a'\]"):
        build_loss({"a": "mse", "b": "mse"})({}, batch(2), {"a": torch.zeros(2)}, None)


def test_without_a_loss_the_output_is_the_loss():
    output = torch.tensor(2.5)
    assert build_loss(None)(output, batch(2), None, None) is output


def test_without_a_loss_an_output_of_rows_is_refused():
    with pytest.raises(ModelError, match=r"a tensor of shape \[2, 3\]"):
        build_loss(None)(torch.zeros(2, 3), batch(2), None, None)


@pytest.mark.parametrize(
    ("loss", "label", "advice"),
    [
        ("bce", -1.0, "label_map={-1: 0, 1: 1}"),
        ("bce_prob", 2.0, "label_map={1: 0, 2: 1}"),
        ("bce", 7.0, "label_map={label: number}"),
        (nn.BCEWithLogitsLoss(), -1.0, "label_map={-1: 0, 1: 1}"),
        (nn.BCELoss(reduction="none"), 2.0, "label_map={1: 0, 2: 1}"),
    ],
)
def test_binary_labels_that_do_not_fit_name_the_option(loss, label, advice):
    with pytest.raises(DataError) as caught:
        build_loss(loss)(torch.full((2,), 0.5), batch(2), torch.tensor([1.0, label]), None)
    assert f"label {label:g} in row 1 of the batch does not fit loss" in str(caught.value)
    assert advice in str(caught.value)


@pytest.mark.parametrize("loss", ["cross_entropy", "nll", nn.CrossEntropyLoss(), nn.NLLLoss()])
def test_classes_that_the_model_lacks_name_the_option(loss):
    with pytest.raises(DataError, match=r"label 3 in row 1 .* 0 to 2; map others with label_map="):
        build_loss(loss)(torch.zeros(2, 3), batch(2), torch.tensor([2, 3]), None)


def test_labels_that_torch_ignores_are_no_mistake():
    label = torch.tensor([2, -100])
    found = build_loss(nn.CrossEntropyLoss())(torch.zeros(2, 3), batch(2), label, None)
    torch.testing.assert_close(found, torch.tensor(3.0).log())


def test_probabilities_of_classes_are_labels_of_torchs_cross_entropy():
    label = torch.tensor([[0.2, 0.8], [1.0, 0.0]])
    found = build_loss(nn.CrossEntropyLoss())(torch.zeros(2, 2), batch(2), label, None)
    torch.testing.assert_close(found, torch.tensor(2.0).log())
