"""The first page of the guide does what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("loaded_once")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "first-model.md"


def test_the_first_model_trains_goes_on_and_predicts(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "first.py").write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, "-W", "error", "first.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "a step has 128 rows, 64 from each of 2 workers" in done.stderr
    assert "resuming from step 120" in done.stderr
    assert (tmp_path / "scores.parquet").exists()
