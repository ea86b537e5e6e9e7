import pytest

from flambeau.config.plural import number_of


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1234567, "1,234,567 rows")]
)
def test_only_one_is_singular(count: int, text: str) -> None:
    assert number_of(count, "row") == text


def test_an_irregular_plural_is_given() -> None:
    assert [number_of(count, "batch", "batches") for count in (1, 2)] == ["1 batch", "2 batches"]
