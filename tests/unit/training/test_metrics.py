"""Metrics against scikit-learn, whole and merged from three uneven workers."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from flambeau.errors import ConfigError, DataError, ModelError
from flambeau.training.metrics import METRICS, build_metrics, higher_is_better

ROWS = 1000


def sk():
    """scikit-learn's metrics, which take seconds to import: only where these tests run."""
    from sklearn import metrics

    return metrics


def one(name: str, *, loss_name: str | None = None, exact_rows: int = 10**6):
    return build_metrics([name], loss_name=loss_name, exact_rows=exact_rows)[name]


def merged(name: str, parts: Sequence[slice], columns, **options) -> float:
    """The metric of rows that several workers evaluated in batches of 100."""
    states = []
    for part in parts:
        worker = one(name, **options)
        chosen = [None if column is None else column[part] for column in columns]
        for start in range(0, len(chosen[0]), 100):
            batch = slice(start, start + 100)
            worker.update(*[None if column is None else column[batch] for column in chosen])
        states.append(worker.state())
    result = one(name, **options)
    result.merge(states)
    return result.compute()


SPLITS = {
    "one worker": [slice(0, ROWS)],
    "three workers, one idle": [slice(0, 730), slice(0, 0), slice(730, ROWS)],
}


@pytest.fixture(params=SPLITS.values(), ids=SPLITS.keys())
def parts(request) -> list[slice]:
    return request.param


@pytest.fixture(params=[False, True], ids=["unweighted", "weighted"])
def weight(request) -> torch.Tensor | None:
    return torch.rand(ROWS, generator=generator(9)) * 3 if request.param else None


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def binary() -> tuple[torch.Tensor, torch.Tensor]:
    """Logits with many ties, and labels that follow them loosely."""
    logit = (torch.randn(ROWS, 1, generator=generator(0)) * 2).round(decimals=1)
    label = (torch.rand(ROWS, generator=generator(1)) < logit[:, 0].sigmoid()).float()
    return logit, label


def classes(count: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    logit = torch.randn(ROWS, count, generator=generator(2))
    label = torch.randint(count, (ROWS,), generator=generator(3))
    logit[torch.arange(ROWS), label] += 1.0
    return logit, label


def probability(logit: torch.Tensor) -> np.ndarray:
    return logit.double().sigmoid().reshape(-1).numpy()


BINARY: dict[str, Callable] = {
    "accuracy": lambda y, p, w: sk().accuracy_score(y, p > 0.5, sample_weight=w),
    "precision": lambda y, p, w: sk().precision_score(y, p > 0.5, sample_weight=w),
    "recall": lambda y, p, w: sk().recall_score(y, p > 0.5, sample_weight=w),
    "f1": lambda y, p, w: sk().f1_score(y, p > 0.5, sample_weight=w),
    "auc": lambda y, p, w: sk().roc_auc_score(y, p, sample_weight=w),
    "logloss": lambda y, p, w: sk().log_loss(y, p, sample_weight=w),
    "normalized_entropy": lambda y, p, w: (
        sk().log_loss(y, p, sample_weight=w)
        / sk().log_loss(y, np.full(len(y), np.average(y, weights=w)), sample_weight=w)
    ),
    "calibration": lambda y, p, w: np.average(p, weights=w) / np.average(y, weights=w),
}


@pytest.mark.parametrize("name", BINARY)
def test_binary_metric_of_logits_equals_sklearn(name, parts, weight):
    logit, label = binary()
    expected = BINARY[name](label.double().numpy(), probability(logit), weight)
    value = merged(name, parts, (logit, label, weight), loss_name="bce")
    assert value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", BINARY)
def test_outputs_are_probabilities_with_the_loss_bce_prob(name, parts):
    logit, label = binary()
    output = logit.sigmoid()
    expected = BINARY[name](label.double().numpy(), output.double().reshape(-1).numpy(), None)
    value = merged(name, parts, (output, label, None), loss_name="bce_prob")
    assert value == pytest.approx(expected, rel=1e-12)


def test_outputs_are_logits_with_a_loss_of_ones_own():
    metric = one("accuracy", loss_name=None)
    metric.update(torch.tensor([0.2, -0.2]), torch.tensor([1, 0]))
    assert metric.compute() == 1.0


MULTICLASS: dict[str, Callable] = {
    "accuracy": lambda y, z, w: sk().accuracy_score(y, z.argmax(1), sample_weight=w),
    "top5": lambda y, z, w: sk().top_k_accuracy_score(y, z, k=5, sample_weight=w),
    "precision": lambda y, z, w: sk().precision_score(
        y, z.argmax(1), average="macro", sample_weight=w
    ),
    "recall": lambda y, z, w: sk().recall_score(y, z.argmax(1), average="macro", sample_weight=w),
    "f1": lambda y, z, w: sk().f1_score(y, z.argmax(1), average="macro", sample_weight=w),
    "logloss": lambda y, z, w: sk().log_loss(
        y, torch.softmax(torch.from_numpy(z), 1).numpy(), sample_weight=w
    ),
}


@pytest.mark.parametrize("loss_name", ["cross_entropy", "nll"])
@pytest.mark.parametrize("name", MULTICLASS)
def test_multiclass_metric_equals_sklearn(name, loss_name, parts, weight):
    logit, label = classes()
    output = logit.double().log_softmax(1) if loss_name == "nll" else logit
    expected = MULTICLASS[name](label.numpy(), logit.double().numpy(), weight)
    value = merged(name, parts, (output, label, weight), loss_name=loss_name)
    assert value == pytest.approx(expected, rel=1e-12)


def test_macro_average_leaves_out_classes_that_never_occur():
    metric = one("f1")
    metric.update(torch.eye(5)[:3], torch.tensor([0, 1, 2]))
    assert metric.compute() == 1.0


@pytest.mark.parametrize("name", ["auc", "precision", "recall", "f1", "normalized_entropy"])
def test_two_columns_are_judged_by_class_1(name):
    logit, label = binary()
    columns = torch.cat([torch.full_like(logit, 0.3), logit + 0.3], dim=1)
    value = merged(name, [slice(0, ROWS)], (columns, label.long(), None), loss_name="cross_entropy")
    assert value == pytest.approx(BINARY[name](label.numpy(), probability(logit), None), rel=1e-6)


@pytest.mark.parametrize("name", ["rmse", "mse", "mae"])
def test_regression_metric_equals_sklearn(name, parts, weight):
    output = torch.randn(ROWS, 2, generator=generator(4))
    label = torch.randn(ROWS, 2, generator=generator(5))
    error = sk().mean_absolute_error if name == "mae" else sk().mean_squared_error
    expected = error(label.double(), output.double(), sample_weight=weight)
    value = merged(name, parts, (output, label, weight), loss_name="mse")
    assert value == pytest.approx(expected ** (0.5 if name == "rmse" else 1.0), rel=1e-12)


def test_rmse_compares_probabilities_with_the_loss_bce():
    metric = one("rmse", loss_name="bce")
    metric.update(torch.zeros(4), torch.tensor([0.0, 1.0, 1.0, 1.0]))
    assert metric.compute() == pytest.approx(0.5)


def test_logloss_of_extreme_logits_is_clamped_like_sklearn():
    metric = one("logloss")
    metric.update(torch.tensor([1000.0, -1000.0]), torch.tensor([0.0, 0.0]))
    assert metric.compute() == pytest.approx(sk().log_loss([0, 0], [1.0, 0.0], labels=[0, 1]))


def test_logloss_of_a_confident_right_logit_keeps_its_precision():
    metric = one("logloss")
    metric.update(torch.tensor([30.0]), torch.tensor([1.0]))
    assert metric.compute() == pytest.approx(np.exp(-30.0), rel=1e-9)


def grouped_auc(score, label, weight, group) -> float:
    areas, weights = [], []
    for key in np.unique(group):
        rows = group == key
        if len(np.unique(label[rows])) == 2:
            areas.append(sk().roc_auc_score(label[rows], score[rows], sample_weight=weight[rows]))
            weights.append(weight[rows].sum())
    return float(np.average(areas, weights=weights))


@pytest.mark.parametrize("kind", ["numbers", "names"])
def test_gauc_is_the_weighted_mean_of_the_groups_auc(kind, parts, weight):
    logit, label = binary()
    group = torch.randint(20, (ROWS,), generator=generator(6)).numpy()
    group[label.numpy() == 1] %= 15  # the others have one class only
    row_weight = np.ones(ROWS) if weight is None else weight.double().numpy()
    expected = grouped_auc(logit[:, 0].numpy(), label.numpy(), row_weight, group)
    keys = torch.from_numpy(group) if kind == "numbers" else group.astype(str).astype(object)
    value = merged("gauc", parts, (logit, label, weight, keys))
    assert value == pytest.approx(expected, rel=1e-12)


def test_gauc_without_a_group_is_an_error_that_names_the_setting():
    with pytest.raises(ConfigError, match="needs group="):
        one("gauc").update(torch.zeros(2), torch.tensor([0, 1]))


@pytest.mark.parametrize("scale", [1e-2, 1.0, 30.0])
def test_auc_above_exact_rows_is_within_a_thousandth(scale, weight):
    logit = torch.randn(ROWS, generator=generator(7)) - 3
    label = (torch.rand(ROWS, generator=generator(8)) < logit.sigmoid()).float()
    expected = sk().roc_auc_score(label, logit, sample_weight=weight)
    value = merged("auc", [slice(0, ROWS)], (logit * scale, label, weight), exact_rows=10)
    assert value == pytest.approx(expected, abs=1e-3)


def test_auc_of_small_probabilities_above_exact_rows_is_within_a_thousandth():
    logit = torch.randn(ROWS, generator=generator(7)) - 12
    label = (torch.rand(ROWS, generator=generator(8)) < (logit + 11).sigmoid()).float()
    value = merged(
        "auc", [slice(0, ROWS)], (logit.sigmoid(), label, None), loss_name="bce_prob", exact_rows=10
    )
    assert value == pytest.approx(sk().roc_auc_score(label, logit), abs=1e-3)


def test_auc_state_stops_growing_above_exact_rows():
    metric = one("auc", exact_rows=150)
    sizes = []
    for _ in range(4):
        metric.update(torch.randn(100), torch.ones(100))
        sizes.append(sum(array.size for array in metric.state().values()))
    assert sizes[1] == sizes[2] == sizes[3]


def test_auc_merges_a_histogram_with_exact_rows():
    logit, label = binary()
    parts = [slice(0, 100), slice(100, 900), slice(900, ROWS)]
    value = merged("auc", parts, (logit, label, None), exact_rows=500)
    assert value == pytest.approx(sk().roc_auc_score(label, logit), abs=1e-3)


def test_auc_counts_in_bins_when_only_the_sum_of_workers_exceeds_exact_rows():
    logit, label = binary()
    states = []
    for part in (slice(0, 500), slice(500, ROWS)):
        worker = one("auc", exact_rows=600)
        worker.update(logit[part], label[part])
        states.append(worker.state())
    result = one("auc", exact_rows=600)
    result.merge(states)
    assert result.state()["scores"].size == 0


def test_a_state_does_not_change_with_later_updates():
    metric = one("auc", exact_rows=1)
    metric.update(torch.randn(3), torch.ones(3))
    state = metric.state()
    metric.update(torch.randn(3), torch.ones(3))
    assert state["histogram"].sum() == 3


@pytest.mark.parametrize("exact_rows", [1, 10**6])
@pytest.mark.parametrize("name", ["auc", "gauc"])
def test_auc_of_one_class_is_nan(name, exact_rows):
    metric = one(name, exact_rows=exact_rows)
    metric.update(torch.randn(9), torch.ones(9), None, torch.zeros(9, dtype=torch.int64))
    assert np.isnan(metric.compute())


@pytest.mark.parametrize("exact_rows", [1, 10**6])
@pytest.mark.parametrize("name", ["auc", "gauc"])
def test_auc_of_nan_outputs_is_nan(name, exact_rows):
    metric = one(name, exact_rows=exact_rows)
    output = torch.tensor([1.0, float("nan"), 2.0, 0.5])
    metric.update(output, torch.tensor([0, 1, 1, 0]), None, torch.zeros(4, dtype=torch.int64))
    assert np.isnan(metric.compute())


def test_infinite_scores_tie_with_each_other():
    metric = one("auc")
    metric.update(torch.full((4,), float("inf")), torch.tensor([0, 1, 1, 0]))
    assert metric.compute() == 0.5


@pytest.mark.parametrize("name", METRICS)
def test_rows_without_a_label_are_left_out(name):
    logit, label = classes() if name == "top5" else binary()
    group = torch.arange(ROWS) % 10
    gaps = label.double()
    gaps[::3] = float("nan")
    kept = ~gaps.isnan()
    whole, part = one(name), one(name)
    whole.update(logit, gaps, torch.ones(ROWS), group)
    part.update(logit[kept], label[kept], None, group[kept])
    assert whole.compute() == pytest.approx(part.compute(), rel=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_metric_of_no_rows_is_nan(name):
    metric = one(name)
    metric.update(torch.zeros(0, 3), torch.zeros(0), None, torch.zeros(0))
    metric.merge([metric.state(), one(name).state()])
    assert np.isnan(metric.compute())


@pytest.mark.parametrize("name", METRICS)
def test_states_are_small_numeric_arrays(name):
    states = one(name).state().values()
    assert all(array.dtype.kind in "fib" for array in states)


def test_metrics_take_bfloat16_outputs():
    metric = one("logloss")
    metric.update(torch.zeros(2, 1, dtype=torch.bfloat16), torch.tensor([0, 1]))
    assert metric.compute() == pytest.approx(np.log(2))


def test_unknown_metric_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        build_metrics(["acuracy"], loss_name="bce", exact_rows=1)


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ModelError, match=r"\[4, 3\] for labels of \[5\]"):
        one("accuracy").update(torch.zeros(4, 3), torch.zeros(5))


def test_auc_of_many_classes_is_an_error():
    with pytest.raises(ModelError, match="two classes; the model gives 3"):
        one("auc").update(torch.zeros(4, 3), torch.zeros(4))


def test_a_label_that_is_no_class_is_an_error():
    with pytest.raises(DataError, match="label 3 is not one of the model's 3 classes"):
        one("f1").update(torch.zeros(4, 3), torch.tensor([0, 1, 2, 3]))


@pytest.mark.parametrize(
    ("name", "higher"),
    [("loss", False), ("logloss", False), ("calibration", False), ("auc", True), ("f1", True)],
)
def test_which_direction_is_better(name, higher):
    assert higher_is_better(name) is higher


OF_TWO_CLASSES = ["accuracy", "precision", "recall", "f1", "auc", "gauc"]
OF_TWO_CLASSES += ["logloss", "normalized_entropy", "calibration"]


@pytest.mark.parametrize("name", OF_TWO_CLASSES)
@pytest.mark.parametrize(("other", "form"), [(-1.0, "-1: 0, 1: 1"), (2.0, "1: 0, 2: 1")])
def test_labels_that_are_not_0_and_1_are_refused(name, other, form):
    label = torch.tensor([1.0, other, float("nan")])
    with pytest.raises(DataError, match=f"metric '{name}'.*label_map={{{form}}}"):
        one(name).update(torch.zeros(3), label, None, torch.zeros(3))


@pytest.mark.parametrize("name", ["rmse", "mae", "calibration"])
def test_values_may_be_any_numbers(name):
    metric = one(name, loss_name="mse")
    metric.update(torch.full((2,), 3.0), torch.tensor([2.0, 4.0]))
    assert metric.compute() == 1.0


def test_soft_labels_are_between_0_and_1():
    metric = one("logloss")
    metric.update(torch.zeros(2), torch.tensor([0.25, 1.0]))
    assert metric.compute() == pytest.approx(np.log(2.0))
