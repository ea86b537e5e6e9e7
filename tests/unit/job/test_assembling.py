import gzip
from pathlib import Path
from typing import Any

import pytest
import torch

from flambeau.checkpoint import RunDirectory
from flambeau.config import CodeRef, FileData, JobSettings
from flambeau.data.sources import files
from flambeau.job.assembling import Assembly
from flambeau.job.surroundings import Surroundings
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
    Assembly(Surroundings(settings, run, link, Solo(), torch.device("cpu"), {})).source()
    ((kind, fields),) = link.events
    assert kind == "warning"
    assert "a.csv.gz" in fields["text"]
    assert "cannot be split" in fields["text"]
