"""The example of daily training: three small days."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "daily" / "daily.py"


@pytest.fixture
def daily() -> ModuleType:
    spec = importlib.util.spec_from_file_location("daily_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_day_is_tested_trained_on_and_sent(daily: ModuleType, tmp_path: Path) -> None:
    first, second, third = daily.main(tmp_path / "daily", rows=36_000, ids=2_000, days=3)
    assert "auc" not in first
    assert 0.6 < second["auc"] < third["auc"] < third["best"]
    assert second["refreshed"]
    assert third["refreshed"]
    assert third["table"]["rows"] >= second["table"]["rows"]
    assert third["table"]["rejected"] > 0
    exports = sorted(path.name for path in (tmp_path / "daily" / "exports").iterdir())
    assert exports == ["day-0", "day-1", "day-2"]
