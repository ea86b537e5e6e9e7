"""Other numbers in the place of the labels that the data has."""

import pytest
import torch
from torch import Tensor

from flambeau.config import Binding
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.data.label_map import map_labels
from flambeau.data.sampling import KeepNegatives
from flambeau.errors import ConfigError, DataError

SIGNS = {-1.0: 0.0, 1.0: 1.0}
NAN = float("nan")


def forward(x: Tensor) -> Tensor:
    return x


def bound(labels: list[float], **settings) -> tuple[Binder, Batch]:
    binder = Binder(Binding(label="y", **settings), forward, Shape(("x", "y")))
    columns = {"x": torch.zeros(len(labels)), "y": torch.tensor(labels)}
    return binder, binder.assemble(Batch(columns, len(labels)))


def test_labels_are_mapped_where_they_are_bound():
    binder, batch = bound([-1.0, 1.0, -1.0], label_map={-1: 0, 1: 1})
    assert binder.label(batch).tolist() == [0.0, 1.0, 0.0]
    assert batch["y"].tolist() == [0.0, 1.0, 0.0]  # which a loss of the user's own reads


def test_rows_are_left_out_by_what_is_learned():
    _, batch = bound([-1.0] * 8 + [1.0], label_map={-1: 0, 1: 1})
    assert KeepNegatives(1e-9, "y", seed=0)(batch)["y"].tolist() == [1.0]


def test_values_may_change_places():
    assert map_labels(torch.tensor([1.0, 2.0, 2.0]), {1.0: 2.0, 2.0: 1.0}, "y").tolist() == [
        2,
        1,
        1,
    ]


def test_a_missing_label_stays_missing():
    found = map_labels(torch.tensor([-1.0, NAN, 1.0]), SIGNS, "y")
    assert found.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("label", "mapping", "expected"),
    [
        (torch.tensor([1, 2]), {1.0: 0.0, 2.0: 1.0}, torch.tensor([0, 1])),
        (torch.tensor([True, False]), {1.0: 7.0, 0.0: 3.0}, torch.tensor([7, 3])),
        (torch.tensor([1, 2]), {1.0: 0.5, 2.0: 1.0}, torch.tensor([0.5, 1.0])),
        (torch.tensor([0.1], dtype=torch.float64), {0.1: 4.0}, torch.tensor([4.0]).double()),
        (torch.tensor([0.1]), {0.1: 4.0}, torch.tensor([4.0])),
    ],
)
def test_the_type_is_that_of_what_is_learned(label, mapping, expected):
    found = map_labels(label, mapping, "y")
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


def test_a_label_that_the_map_lacks_is_named():
    with pytest.raises(DataError, match=r"label 0 in column 'y' is not in label_map=.-1: 0, 1: 1."):
        bound([-1.0, 0.0], label_map=SIGNS)


def test_a_map_comes_back_from_plain_values():
    binding = Binding(label="y", label_map={-1: 0, 1: 1})
    assert Binding.parse(binding.model_dump(mode="json")) == binding


def test_a_map_holds_numbers():
    with pytest.raises(ConfigError, match="label_map"):
        Binding(label="y", label_map={"no": 0})
