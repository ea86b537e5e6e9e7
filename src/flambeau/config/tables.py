"""Settings of embedding tables: shape, initial values, and which ids get and keep a row."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from flambeau.config.optimizer import OptimizerSpec, for_tables
from flambeau.config.settings import Settings, nearest
from flambeau.errors import ConfigError


class Initializer(Settings):
    """Initial values of rows: `uniform` in ±scale, `normal` with that std, or `constant`."""

    kind: Literal["uniform", "normal", "constant"] = "uniform"
    scale: float = Field(default=0.05, ge=0.0)
    value: float = 0.0


class MinCount(Settings):
    """Admission of an id in the `count`-th batch that contains it; before, it has the default row.

    Batches are counted in a sketch of `cells` bytes per shard, so ids that are never admitted need
    no memory. The sketch may overestimate counts, but never underestimates them.
    """

    kind: Literal["min_count"] = "min_count"
    count: int = Field(ge=1, le=255)
    cells: int = Field(default=1 << 24, ge=1 << 10)

    def __init__(self, count: int, **values: Any) -> None:
        super().__init__(count=count, **values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


class Probability(Settings):
    """Admission of an id with probability `p` in each batch that contains it."""

    kind: Literal["probability"] = "probability"
    p: float = Field(gt=0.0, le=1.0)

    def __init__(self, p: float, **values: Any) -> None:
        super().__init__(p=p, **values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


class TimeToLive(Settings):
    """Eviction of rows that have not been trained for a number of `steps`, `seconds` or `days`."""

    kind: Literal["time_to_live"] = "time_to_live"
    steps: int | None = Field(default=None, ge=1)
    seconds: float | None = Field(default=None, gt=0)
    days: float | None = Field(default=None, gt=0)

    def __init__(self, *unit_needed: Any, **values: Any) -> None:
        if unit_needed:
            raise ConfigError(
                f"TimeToLive({unit_needed[0]!r}): of what? Give TimeToLive(steps=...), "
                "(seconds=...) or (days=...)"
            )
        super().__init__(**values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="after")
    def _just_one(self) -> "TimeToLive":
        if sum(value is not None for value in (self.steps, self.seconds, self.days)) != 1:
            raise ValueError("give one of steps, seconds and days")
        return self


class Capacity(Settings):
    """Eviction that keeps at most `rows` rows in all shards together.

    The rows that were trained least recently (`lru`) or least often (`lfu`) are evicted.
    """

    kind: Literal["capacity"] = "capacity"
    rows: int = Field(ge=1)
    policy: Literal["lru", "lfu"] = "lru"

    def __init__(self, rows: int, **values: Any) -> None:
        super().__init__(rows=rows, **values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


def _kind(value: object) -> object:
    return value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)


def _known(*kinds: str) -> BeforeValidator:
    """Return a validator that rejects mappings of another kind and suggests the nearest one."""

    def check(value: object) -> object:
        if isinstance(value, dict) and value.get("kind", kinds[0]) not in kinds:
            raise ValueError(f"unknown kind; {nearest(str(value['kind']), kinds)}")
        return value

    return BeforeValidator(check)


Admission = Annotated[
    Annotated[MinCount, Tag("min_count")] | Annotated[Probability, Tag("probability")],
    Discriminator(
        _kind,
        custom_error_type="admission",
        custom_error_message="give MinCount(...) or Probability(...)",
    ),
    _known("min_count", "probability"),
]
Eviction = Annotated[
    Annotated[TimeToLive, Tag("time_to_live")] | Annotated[Capacity, Tag("capacity")],
    Discriminator(
        _kind,
        custom_error_type="eviction",
        custom_error_message="give TimeToLive(...) or Capacity(...)",
    ),
    _known("time_to_live", "capacity"),
]


class TableSpec(Settings):
    """A table with a row of `dim` numbers for any int64 id; the number of rows is not fixed.

    `admission` determines which ids get a row, `eviction` which rows are removed. `init` is a
    Parquet file with columns `id` and `vector` that contains the initial rows. `storage="mmap"`
    keeps rows in memory-mapped files, for tables larger than memory.
    """

    name: str
    dim: int = Field(ge=1)
    optimizer: OptimizerSpec | None = None
    initializer: Initializer = Initializer()
    dtype: Literal["fp32", "fp64", "bf16", "fp16"] = "fp32"
    admission: Admission | None = None
    eviction: Eviction | None = None
    trainable: bool = True
    init: str | None = None
    storage: Literal["memory", "mmap"] = "memory"

    def __init__(self, name: str, dim: int, **values: Any) -> None:
        try:
            super().__init__(name=name, dim=dim, **values)
        except ConfigError as error:
            lines = str(error).splitlines()
            raise ConfigError("\n".join(f"TableSpec({name!r}): {line}" for line in lines)) from None

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @field_validator("name")
    @classmethod
    def _part_of_a_file_name(cls, name: str) -> str:
        if not re.fullmatch(r"[\w.-]+", name):
            raise ValueError("a table's name has letters, digits, '_', '-' and '.' only")
        return name

    @field_validator("optimizer")
    @classmethod
    def _for_tables(cls, spec: OptimizerSpec | None) -> OptimizerSpec | None:
        return for_tables(spec)

    @model_validator(mode="after")
    def _frozen_needs_none(self) -> "TableSpec":
        if not self.trainable and self.optimizer is not None:
            raise ValueError("a table with trainable=False has no use for an optimizer")
        return self


def optimizer_of(spec: TableSpec, given: OptimizerSpec | None) -> OptimizerSpec:
    """Return the optimizer of a table: its own, the one `given` for all tables, or Adagrad.

    Weights of a linear model (one number per row) take larger steps than embeddings, whose products
    with each other and with later layers grow faster than they do.
    """
    default = OptimizerSpec(name="adagrad", args={"lr": 0.05 if spec.dim == 1 else 0.02})
    return spec.optimizer or given or default
