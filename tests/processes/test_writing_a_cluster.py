"""The cluster of the page "Writing a cluster" works as it is printed there."""

import importlib
import re
from pathlib import Path

import pytest
from toy import QUIET, Net, Strike, make_data

import flambeau as fb

PAGE = Path(__file__).parents[2] / "docs/architecture/writing-a-cluster.md"


def test_the_cluster_of_the_page_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "my_cluster.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    mine = importlib.import_module("my_cluster")
    result = fb.fit(
        Net(),
        make_data(),
        loss="cross_entropy",
        batch_size=8,
        cluster=mine.Mine(workers=2),
        checkpoints={"every_steps": 2},
        recovery={"max_restarts": 1},
        callbacks=[Strike(1, 4, "kill")],
        observe=QUIET,
        run_dir=tmp_path / "run",
    )
    assert result.report["workers"] == 2
    assert result.report["restarts"] == 1
