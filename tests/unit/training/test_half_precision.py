"""Whether bf16 is worth it on this CPU."""

import pytest

from flambeau.training.half_precision import bf16_slowdown, bf16_warning


@pytest.mark.parametrize("slowdown", [0.4, 1.9])
def test_bf16_that_is_about_as_fast_needs_no_words(slowdown: float) -> None:
    assert bf16_warning(slowdown) is None


def test_bf16_that_is_much_slower_is_told_with_what_to_do() -> None:
    text = bf16_warning(17.2)
    assert text is not None
    assert "takes 17 times as long as in fp32; use precision='fp32'" in text


def test_the_slowdown_is_measured() -> None:
    assert bf16_slowdown() > 0.0
