"""The example that serves predictions behind FastAPI."""

import asyncio
import runpy
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from flambeau.inference.export import ExportOptions
from flambeau.runs.run_export import export_run
from flambeau.runs.trained_run import read_settings

sys.path.append(str(Path(__file__).parents[1] / "inference"))
from small_runs import write_run

APP = Path(__file__).parents[3] / "examples" / "serving" / "app.py"


def post(app: Any, path: str, rows: Any) -> Any:
    async def ask() -> Any:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            return await client.post(path, json=rows)

    return asyncio.run(ask())


def test_rows_are_answered_with_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path, "Mlp")
    export_run(run, read_settings(run), "latest", tmp_path / "out", ExportOptions())
    monkeypatch.setenv("EXPORT", str(tmp_path / "out"))
    app = runpy.run_path(str(APP))["app"]
    answer = post(app, "/predict", [{"I1": 1, "I2": 0.5}, {"I1": 0, "I2": 2}]).json()
    assert [set(row) for row in answer] == [{"prediction", "probabilities"}] * 2
    assert sum(answer[0]["probabilities"]) == pytest.approx(1)
    assert post(app, "/refresh", None).json() is False
    refused = post(app, "/predict", [{"I1": 1}])
    assert refused.status_code == 422
    assert "I2" in refused.json()["detail"]
