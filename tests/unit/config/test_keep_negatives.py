from typing import Any

import pytest

from flambeau.config import JobSettings
from flambeau.errors import ConfigError

JOB: dict[str, Any] = {
    "model": {"path": "a:b"},
    "train": {"kind": "files", "path": "x.parquet"},
    "loading": {"keep_negatives": 0.1},
    "loss": "bce",
    "binding": {"label": "click"},
}


def test_it_goes_with_a_label_of_0_and_1() -> None:
    assert JobSettings.parse(JOB, "job").loading.keep_negatives == 0.1


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"loss": "mse"}, "needs loss='bce' or 'bce_prob'"),
        ({"loss": {"click": "bce"}}, "needs loss='bce' or 'bce_prob'"),
        ({"binding": {"label": ["a", "b"]}}, "needs one label"),
        ({"loading": {"keep_negatives": 0.0}}, "greater than 0"),
        ({"loading": {"keep_negatives": 1.5}}, "less than or equal to 1"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(changes: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        JobSettings.parse({**JOB, **changes}, "job")
