"""What roles are given to do their work, and what their agent adds.

A payload is made by the driver and reaches all roles of a job as it is. What depends on the agent,
such as paths, is in its `Site`.
"""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec


class InitialWeights(msgspec.Struct, frozen=True):
    """The run that another one starts from, as the user has named it.

    `checkpoint` is the name of its checkpoint; None in a run that is resumed, which needs it only
    if none of its own is sound. `patterns` name the weights to load; None: all.
    """

    reference: str
    checkpoint: str | None = None
    patterns: list[str] | None = None


class RunPayload(msgspec.Struct, frozen=True, tag=True):
    """A run: its settings, in plain values, and its directory as the driver sees it."""

    settings: dict[str, Any]
    run_dir: str


class TrainingPayload(RunPayload, frozen=True, tag=True):
    """The run to train, for workers, servers and the evaluator."""

    initial: InitialWeights | None = None


@dataclass(frozen=True)
class Part:
    """Shards `first` to `last` of streamed data, or rows; `rows` is None if nobody knows."""

    index: int
    first: int
    last: int
    rows: int | None

    @property
    def file_name(self) -> str:
        """What the file of its predictions is called; names sort in the order of the data."""
        return f"part-{self.index:06d}.parquet"


class PredictorPayload(RunPayload, frozen=True, tag=True):
    """What predictors work with: a run, its checkpoint, the data and its parts.

    `source` is the opened data, pickled; None: open `data`. Predictions are written to the folder
    `out`; without one, the model is evaluated by `metrics`.
    """

    checkpoint: str
    data: dict[str, Any] | None
    source: bytes | None
    parts: list[Part]
    batch_size: int | None = None
    out: str | None = None
    metrics: list[str] = []


class ExportPayload(msgspec.Struct, frozen=True, tag=True):
    """What predictors of an export work with: its folder, the opened data, pickled, and its parts.

    Predictions are written to the folder `out`. `trust` allows exports that run code.
    """

    export: str
    source: bytes
    parts: list[Part]
    out: str
    batch_size: int | None = None
    trust: bool = False


class PreparerPayload(msgspec.Struct, frozen=True, tag=True):
    """What preparers work with, pickled: a `Preparation`, and its steps with their pieces."""

    job: bytes


class PieceDone(msgspec.Struct, frozen=True):
    """What a preparer reports with each piece: its name, and the most memory it has had so far."""

    process: str
    peak_bytes: int


class FunctionFiles(msgspec.Struct, frozen=True, tag=True):
    """A function in a file of the driver, and a file for the result of each rank: descriptors."""

    function: int
    results: list[int]


class FunctionValue(msgspec.Struct, frozen=True, tag=True):
    """A function, pickled; results travel with the messages."""

    function: bytes


class ScriptPayload(msgspec.Struct, frozen=True, tag=True):
    """A Python script, the name of a module, or any other program, and its arguments."""

    program: str
    arguments: list[str] = []
    kind: Literal["script", "module", "program"] = "script"


Payload = (
    TrainingPayload
    | PredictorPayload
    | ExportPayload
    | PreparerPayload
    | FunctionFiles
    | FunctionValue
    | ScriptPayload
)


class Site(msgspec.Struct, frozen=True):
    """What an agent knows of the place where its roles run.

    `host` is the address at which other machines reach its roles. `run_dir` is the run's directory
    there, or the agent's mirror of it; `initial` refers to what it starts from as it is found
    there. The files with the rows of the job's data frames that are at agent `home` have the
    descriptors `spooled`; `spools` are the rows of all agents' files, by frame and agent, and
    `spooling` names the occasion on which they were written.
    """

    run_dir: str = ""
    initial: InitialWeights | None = None
    home: int = 0
    spooled: dict[str, int] = {}
    spools: dict[str, list[list[int]]] = {}
    spooling: str = ""
    host: str = "127.0.0.1"
