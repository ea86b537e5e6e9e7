"""Payloads: the input of roles, and the part of it that their agent adds.

The driver makes a payload, and all roles of a job receive it unchanged. Values that depend on the
agent, such as paths, are in its `Site`.
"""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec


class InitialWeights(msgspec.Struct, frozen=True):
    """The run from which another one is initialized, as the user has named it.

    `checkpoint` is the name of its checkpoint. It is None in a run that is resumed, which needs it
    only if none of its own checkpoints is sound. `patterns` select the weights to load; None: all.
    """

    reference: str
    checkpoint: str | None = None
    patterns: list[str] | None = None


class RunPayload(msgspec.Struct, frozen=True, tag=True):
    """A run: its settings as plain values, and its directory as the driver sees it."""

    settings: dict[str, Any]
    run_dir: str


class TrainingPayload(RunPayload, frozen=True, tag=True):
    """The run to train, for workers, servers and the evaluator."""

    initial: InitialWeights | None = None


@dataclass(frozen=True)
class Part:
    """Shards `first` to `last` of streamed data, or rows; `rows` is None if it is unknown."""

    index: int
    first: int
    last: int
    rows: int | None

    @property
    def file_name(self) -> str:
        """Name of the file with its predictions; names sort in the order of the data."""
        return f"part-{self.index:06d}.parquet"


class PredictorPayload(RunPayload, frozen=True, tag=True):
    """Input of predictors: a run, its checkpoint, the data and its parts.

    `source` is the opened data, pickled; if it is None, predictors open `data`. Predictions are
    written to the folder `out`; without one, the model is evaluated with `metrics`.
    """

    checkpoint: str
    data: dict[str, Any] | None
    source: bytes | None
    parts: list[Part]
    batch_size: int | None = None
    out: str | None = None
    metrics: list[str] = []


class ExportPayload(msgspec.Struct, frozen=True, tag=True):
    """Input of predictors of an export: its folder, the opened and pickled data, and its parts.

    Predictions are written to the folder `out`. `trust` allows exports that run code.
    """

    export: str
    source: bytes
    parts: list[Part]
    out: str
    batch_size: int | None = None
    trust: bool = False


class PreparerPayload(msgspec.Struct, frozen=True, tag=True):
    """Input of preparers, pickled: a `Preparation`, and its steps with their pieces."""

    job: bytes


class PieceDone(msgspec.Struct, frozen=True):
    """Report of a preparer about a finished piece: its name, and its peak memory so far."""

    process: str
    peak_bytes: int


class FunctionFiles(msgspec.Struct, frozen=True, tag=True):
    """File descriptors of a file with a function, and of a file for the result of each rank."""

    function: int
    results: list[int]


class FunctionValue(msgspec.Struct, frozen=True, tag=True):
    """A function, pickled; its results are sent in messages."""

    function: bytes


class ScriptPayload(msgspec.Struct, frozen=True, tag=True):
    """A Python script, the name of a module or any other program, and its arguments."""

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
    """Values that depend on the machine and the agent of roles.

    `host` is the address at which other machines reach its roles. `run_dir` is the path of the run
    directory there, or of the agent's mirror of it; `initial` is the initial run as seen there.

    Agent `home` has its rows of the job's data frames in files with the descriptors `spooled`.
    `spools` has the numbers of rows in all agents' files, by frame and agent. `frames_digest`
    changes if the content of any of these files does.
    """

    run_dir: str = ""
    initial: InitialWeights | None = None
    home: int = 0
    spooled: dict[str, int] = {}
    spools: dict[str, list[list[int]]] = {}
    frames_digest: str = ""
    host: str = "127.0.0.1"
