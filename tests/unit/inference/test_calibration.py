import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from flambeau.inference.calibration import calibrate_in_use, calibrated

SHARES = st.floats(0.01, 1.0)


@given(p=st.floats(0.001, 0.999), keep=SHARES)
def test_probabilities_become_those_of_all_rows(p: float, keep: float) -> None:
    """Of n rows n * p are positive; among those that stay, that is another share."""
    seen = torch.tensor(p / (p + (1 - p) * keep), dtype=torch.float64)
    assert calibrated(seen, "bce_prob", keep).item() == pytest.approx(p)
    logit = calibrated(torch.logit(seen), "bce", keep)
    assert torch.sigmoid(logit).item() == pytest.approx(p)


def test_a_model_is_calibrated_in_use_and_not_in_training() -> None:
    model = nn.Identity()
    calibrate_in_use(model, "bce", 0.5)
    logit = torch.zeros(2)
    assert torch.equal(model.train()(logit), logit)
    half = torch.full((2,), 0.5).log()
    assert torch.equal(model.eval()(logit), half)
    assert torch.equal(copy.deepcopy(model)(logit), half)
    assert model({"other": logit}) == {"other": logit}
