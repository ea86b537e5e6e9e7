"""What a driver leaves behind in the folder for temporary files."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = """
import signal, torch
from flambeau.spark import TorchModel
print(TorchModel.of(torch.nn.Linear(2, 1)).modelFolder, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_a_signal_ends_leaves_no_folder(number: int, tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    folder = driver.stdout.readline().strip()
    assert tmp_path in Path(folder).parents
    assert Path(folder).is_dir()
    driver.send_signal(number)
    driver.communicate(timeout=60)  # until also what removes the folder has ended
    assert list(tmp_path.iterdir()) == []
