"""References to the user's code: by import path, or by value in the run directory."""

from typing import Any

from pydantic import Field, model_validator

from flambeau.config.settings import Settings


class CodeRef(Settings):
    """Reference to an object of the user: a model, a loss, a dataset.

    `path` is `package.module:name`; `value` is a file in the run directory's `code/`. With `call`
    the object (a class or a builder function) is called with `args` on the worker.
    """

    path: str | None = Field(default=None, pattern=r"^[\w.]+:[\w.]+$")
    value: str | None = None
    args: dict[str, Any] = {}
    call: bool = False

    @model_validator(mode="after")
    def _one_origin(self) -> "CodeRef":
        if (self.path is None) == (self.value is None):
            raise ValueError("give either path='package.module:name' or value='file'")
        return self

    @property
    def name(self) -> str:
        """Name in messages."""
        return self.path or self.value or ""
