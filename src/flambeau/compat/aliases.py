"""`alias`: the names of other systems for our own modules, so that scripts run unchanged."""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import ModuleType
from typing import final

from flambeau.config.settings import nearest
from flambeau.errors import ConfigError
from flambeau.roles.program import run_program

TARGETS = {
    "horovod": "flambeau.compat.horovod",
    "sparktorch": "flambeau.compat.sparktorch",
}


def alias(name: str) -> None:
    """Let `import name`, and of all modules below it, mean Flambeau's in this process.

    It goes before a package of that name that is installed, and so has to come before it is
    imported. Objects know where they really come from: processes elsewhere need no alias to
    unpickle them.
    """
    if name not in TARGETS:
        raise ConfigError(f"there is no alias '{name}'; {nearest(name, TARGETS)}")
    finder = _Finder(name, TARGETS[name])
    if finder in sys.meta_path:
        return
    if name in sys.modules:
        raise ConfigError(f"{name} has been imported already; alias('{name}') has to come first")
    sys.meta_path.insert(0, finder)


def run_aliased(
    names: Sequence[str], program: str, arguments: Sequence[str], *, module: bool
) -> None:
    """Run a program in this process as Python would, with these aliases."""
    for name in names:
        alias(name)
    run_program(program, arguments, module=module)


@final
class _Finder(MetaPathFinder, Loader):
    """Finds modules under one name that are somewhere else."""

    def __init__(self, name: str, target: str) -> None:
        self._name, self._target = name, target
        self._specs: dict[str, ModuleSpec | None] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Finder) and other._name == self._name

    def __hash__(self) -> int:
        return hash(self._name)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec, if the name is the alias or below it, and there is such a module."""
        top = fullname.partition(".")[0]
        if top != self._name or find_spec(self._real(fullname)) is None:
            return None
        return spec_from_loader(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The very same module as under its own name."""
        module = importlib.import_module(self._real(spec.name))
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back its own spec: it has been loaded before."""
        assert module.__spec__ is not None
        module.__spec__ = self._specs.pop(module.__spec__.name)

    def _real(self, fullname: str) -> str:
        return self._target + fullname.removeprefix(self._name)
