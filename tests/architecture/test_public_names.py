"""The public surface is small, complete and visible."""

from types import ModuleType

import flambeau

AT_MOST = 24


def unresolved(module: ModuleType) -> list[str]:
    """Public names that the module does not have."""
    return [name for name in module.__all__ if not hasattr(module, name)]


def unlisted(module: ModuleType) -> list[str]:
    """Public names that `dir()` does not show, and completion so does not offer."""
    return sorted(set(module.__all__) - set(dir(module)))


def module_with(**attributes: object) -> ModuleType:
    module = ModuleType("sample")
    vars(module).update(attributes)
    return module


def test_there_are_few_public_names() -> None:
    assert 0 < len(flambeau.__all__) <= AT_MOST


def test_every_public_name_is_there() -> None:
    assert unresolved(flambeau) == []


def test_dir_lists_every_public_name() -> None:
    assert unlisted(flambeau) == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(flambeau, "no_such_name")


def test_a_name_that_does_not_resolve_is_found() -> None:
    assert unresolved(module_with(__all__=["there", "gone"], there=1)) == ["gone"]


def test_a_name_that_dir_hides_is_found() -> None:
    assert unlisted(module_with(__all__=["there", "gone"], there=1)) == ["gone"]
