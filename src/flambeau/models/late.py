"""Models that are imported when they are first built."""

import importlib
from dataclasses import dataclass
from typing import Any, cast, final

from torch import nn


@final
@dataclass(frozen=True)
class Late:
    """A class of models by `module` and `name`: its tables need kernels, which few jobs load."""

    module: str
    name: str

    def load(self) -> type[nn.Module]:
        """The class."""
        return cast(type[nn.Module], getattr(importlib.import_module(self.module), self.name))

    def __call__(self, **args: Any) -> nn.Module:
        return self.load()(**args)
