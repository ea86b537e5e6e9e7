import gzip
from pathlib import Path
from typing import Any

import pytest
import torch

from flambeau.checkpoint import RunDirectory
from flambeau.config import CodeRef, FileData, JobSettings
from flambeau.coordination.payloads import Site
from flambeau.data.sources import files
from flambeau.roles.worker_builder import WorkerBuilder
from flambeau.roles.worker_context import WorkerContext
from flambeau.strategies.group import Solo


class Reports:
    """The part of a link that takes reports."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def report(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))


def test_the_user_is_told_of_a_large_compressed_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"x,y\n1,2\n"))
    monkeypatch.setattr(files, "_LARGE", 5)
    settings = JobSettings(
        model=CodeRef(path="m:thing"), train=FileData(path=str(tmp_path / "a.csv.gz")), loss="mse"
    )
    link: Any = Reports()
    run = RunDirectory(tmp_path / "run")
    WorkerBuilder(WorkerContext(settings, run, link, Solo(), torch.device("cpu"), Site())).source()
    ((kind, fields),) = link.events
    assert kind == "warning"
    assert "a.csv.gz" in fields["text"]
    assert "cannot be split" in fields["text"]


@pytest.mark.parametrize(
    ("changes", "warnings"),
    [({}, 1), ({"evaluation": {"train": True}}, 0), ({"metrics": ()}, 0)],
    ids=["nothing to evaluate", "training rows", "no metrics"],
)
def test_metrics_without_data_are_warned_of(
    tmp_path: Path, changes: dict[str, Any], warnings: int
) -> None:
    settings = JobSettings(
        model=CodeRef(path="m:thing"),
        train=FileData(path="a.csv"),
        loss="bce",
        **{"metrics": ("auc",), **changes},
    )
    link: Any = Reports()
    where = WorkerContext(
        settings, RunDirectory(tmp_path), link, Solo(), torch.device("cpu"), Site()
    )
    WorkerBuilder(where).evaluation(torch.nn.Linear(1, 1), 100)
    texts = [fields["text"] for kind, fields in link.events if kind == "warning"]
    assert len(texts) == warnings
    assert all("metrics=['auc'] have no data: give valid=" in text for text in texts)
