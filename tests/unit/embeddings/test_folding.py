"""Distinct ids are found once for all who ask."""

import numpy as np
import torch

from flambeau.embeddings.unique_ids import REMEMBERED, Folds


def test_the_same_memory_is_folded_once_whatever_its_shape() -> None:
    folds, ids = Folds(), torch.tensor([[3, 5], [3, 7]])
    unique, inverse = folds(ids)
    assert unique.tolist() == [3, 5, 7]
    assert inverse.tolist() == [0, 1, 0, 2]
    assert folds(ids.flatten())[0] is unique


def test_a_tensor_that_changed_is_folded_again() -> None:
    folds, ids = Folds(), torch.tensor([1, 1, 2])
    assert folds(ids)[0].tolist() == [1, 2]
    ids[0] = 9
    assert folds(ids)[0].tolist() == [9, 1, 2]


def test_memory_of_a_forgotten_tensor_is_not_mistaken() -> None:
    folds = Folds()
    for number in range(50):
        ids = torch.full((1000,), number)
        assert folds(ids)[0].tolist() == [number]
    assert len(folds._known) == REMEMBERED


def test_columns_of_a_matrix_are_told_apart() -> None:
    folds, ids = Folds(), torch.tensor([[1, 2], [3, 4]])
    assert folds(ids[:, 0])[0].tolist() == [1, 3]
    assert folds(ids[:, 1])[0].tolist() == [2, 4]
    np.testing.assert_array_equal(folds(ids[0])[0], [1, 2])


def test_tensors_of_inference_mode_are_folded_too() -> None:
    with torch.inference_mode():
        ids = torch.tensor([4, 4, 1])
        assert Folds()(ids)[0].tolist() == [4, 1]
