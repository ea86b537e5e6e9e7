import pytest

from flambeau.config import Compute
from flambeau.errors import ConfigError


@pytest.mark.parametrize("given", [True, False, "max-autotune"])
def test_compile_is_a_switch_or_a_mode_of_torch_compile(given: bool | str) -> None:
    assert Compute.parse({"compile": given}, "compute").compile == given


def test_another_mode_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"compile='faster'.*'reduce-overhead'"):
        Compute.parse({"compile": "faster"}, "compute")
