"""What an embedding table is: its shape, its first values, and which ids get and keep a row."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from flambeau.config.optimizer import TABLE_OPTIMIZERS, OptimizerSpec
from flambeau.config.settings import Settings, nearest


class Initializer(Settings):
    """First values of a row: `uniform` in ±scale, `normal` with that deviation, or `constant`."""

    kind: Literal["uniform", "normal", "constant"] = "uniform"
    scale: float = Field(default=0.05, ge=0.0)
    value: float = 0.0


class TableSpec(Settings):
    """A table of `dim` numbers for any int64 id; no number of rows is given.

    `storage="mmap"` keeps rows in memory-mapped files, for tables larger than memory.
    """

    name: str = Field(pattern=r"^[\w.-]+$")
    dim: int = Field(ge=1)
    optimizer: OptimizerSpec | None = None
    initializer: Initializer = Initializer()
    dtype: Literal["fp32", "fp64", "bf16", "fp16"] = "fp32"
    trainable: bool = True
    storage: Literal["memory", "mmap"] = "memory"

    @field_validator("optimizer")
    @classmethod
    def _for_tables(cls, spec: OptimizerSpec | None) -> OptimizerSpec | None:
        if spec is not None and spec.name not in TABLE_OPTIMIZERS:
            hint = nearest(spec.name, TABLE_OPTIMIZERS)
            raise ValueError(f"'{spec.name}' is not an optimizer for tables; {hint}")
        return spec

    @model_validator(mode="after")
    def _frozen_needs_none(self) -> "TableSpec":
        if not self.trainable and self.optimizer is not None:
            raise ValueError("a table with trainable=False has no use for an optimizer")
        return self
