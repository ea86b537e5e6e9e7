import pytest
import torch

from flambeau.data.batch import Batch
from flambeau.data.jagged import from_lists
from flambeau.data.sampling import KeepNegatives
from flambeau.errors import DataError


def make_batch(label: torch.Tensor, epoch: int = 0, index: int = 0) -> Batch:
    count = len(label)
    bags = from_lists([[row] * (row % 3) for row in range(count)])
    return Batch({"y": label, "x": torch.arange(count), "bags": bags}, count, epoch, index)


MANY = make_batch(torch.tensor([1.0] * 10 + [0.0] * 990))


def test_all_positives_and_a_share_of_the_negatives_stay() -> None:
    kept = KeepNegatives(0.3, "y", 5)(MANY)
    assert kept["y"].sum() == 10
    assert 240 < kept.size - 10 < 360
    assert kept.size + kept.left_out == 1000


def test_columns_stay_together_and_in_order() -> None:
    kept = KeepNegatives(0.3, "y", 5)(MANY)
    assert kept["bags"].lengths.tolist() == (kept["x"] % 3).tolist()
    assert (kept["x"].diff() > 0).all()


def test_the_same_place_in_the_training_leaves_out_the_same_rows() -> None:
    sample = KeepNegatives(0.5, "y", 5)
    rows = sample(MANY)["x"]
    assert torch.equal(rows, KeepNegatives(0.5, "y", 5)(MANY)["x"])
    for other in (MANY.at(1, 0), MANY.at(0, 1)):
        assert not torch.equal(rows, sample(other)["x"])
    assert not torch.equal(rows, KeepNegatives(0.5, "y", 6)(MANY)["x"])


def test_one_row_that_counts_nothing_stays_of_a_batch_of_negatives() -> None:
    kept = KeepNegatives(1e-9, "y", 0)(make_batch(torch.zeros(8, dtype=torch.int64)))
    assert kept["y"].isnan().tolist() == [True]
    assert (kept.size, kept.left_out) == (1, 7)


def test_a_batch_of_positives_is_left_as_it_is() -> None:
    batch = make_batch(torch.ones(4))
    assert KeepNegatives(0.1, "y", 0)(batch) is batch


def test_a_label_of_several_columns_is_refused() -> None:
    with pytest.raises(DataError, match="by column 'y', which must hold one number in each row"):
        KeepNegatives(0.5, "y", 0)(make_batch(torch.zeros(3, 2)))
