"""Several processes that apply a run's checkpoint to data, part by part."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import cloudpickle

from flambeau.checkpoint import RunDirectory, lease
from flambeau.clusters.control_groups import count_cores
from flambeau.config import Cluster, DatasetData, FileData, JobSettings, Local
from flambeau.coordination.payloads import Part, PredictorPayload
from flambeau.coordination.roles import Role
from flambeau.data.data_kinds import as_files, is_paths
from flambeau.data.source import Source, StreamedSource
from flambeau.driver.control.starting_points import StartingPoints
from flambeau.driver.parts.part_coordinator import OnPart, OnRows, PartCoordinator
from flambeau.driver.parts.run_parts import run_parts
from flambeau.driver.topology import Topology, make_carrier
from flambeau.errors import ConfigError

#: How long the replacement of a lost process can still load the checkpoint.
LEASE_SECONDS = 86_400.0


@final
@dataclass(frozen=True)
class PartJob:
    """A checkpoint of a run, the data as given, and the same data as a source.

    Processes of `cluster` work on the data, by default those of this machine.
    """

    run: RunDirectory
    settings: JobSettings
    checkpoint: Path
    data: Any
    source: Source
    cluster: Cluster = field(default_factory=Local)

    def workers(self, asked: int | None, parts: int, done: str) -> int:
        """Return the number of processes; 1 is this process. `done` names the work in errors."""
        if not self._travels():
            if (asked or 1) > 1:
                raise ConfigError(
                    f"workers={asked}: data of this process's memory is {done} here; give files "
                    "or module:function, or leave workers out"
                )
            return 1
        if self.spreads:
            return asked or self.cluster.workers
        return min(parts, asked or count_cores())

    def work(
        self,
        parts: Sequence[Part],
        workers: int,
        on_rows: OnRows = lambda rows: None,
        on_part: OnPart = lambda part, result: None,
        *,
        resumes: bool = False,
        **options: Any,
    ) -> None:
        """Run predictors on all parts; `options` are those of `PredictorPayload`.

        The part of a lost process is repeated by another one. `resumes`: the same command resumes
        with the missing parts, and errors say so.
        """
        numbers = [part.index for part in parts]
        cluster = self.cluster if self.spreads else Local(workers)
        topology = Topology(
            workers,
            Role.PREDICTOR,
            coordinator=PartCoordinator(numbers, on_rows, on_part),
            starts=StartingPoints(always=self.checkpoint.name),
            carrier=make_carrier(self.run, cluster, self.settings.checkpoints.keep),
        )
        with lease(self.checkpoint, LEASE_SECONDS):
            recovery = self.settings.recovery
            run_parts(topology, cluster, self._payload(parts, options), recovery, resumes=resumes)

    @property
    def spreads(self) -> bool:
        """Return whether processes of other machines, or of a launcher, can work on the data."""
        return not isinstance(self.cluster, Local) and self._travels()

    def _travels(self) -> bool:
        """Return whether another process can open the data."""
        given = self.data
        return given is None or is_paths(given) or isinstance(given, FileData | DatasetData)

    def _payload(self, parts: Sequence[Part], options: dict[str, Any]) -> PredictorPayload:
        data = as_files(self.data) if is_paths(self.data) else self.data
        # Streamed sources hold their shards, whose listing may have taken a pass over the files.
        streamed = isinstance(self.source, StreamedSource)
        return PredictorPayload(
            run_dir=str(self.run.path.resolve()),
            settings=self.settings.model_dump(mode="json"),
            checkpoint=self.checkpoint.name,
            data=None if data is None else data.model_dump(mode="json"),
            source=cloudpickle.dumps(self.source) if streamed else None,
            parts=list(parts),
            **options,
        )
