"""What an interpreter of its own loads, and does with scripts."""

import subprocess
import sys
from pathlib import Path

import pytest

from flambeau.compat import aliased_program

pytestmark = pytest.mark.usefixtures("loaded_once")

SCRIPT = """
import sys
from beside import word
from sparktorch import SparkTorch
print(__name__, sys.argv[1:], word, SparkTorch.__module__)
"""
PRINTED = "__main__ ['-n', '3'] there flambeau.compat.sparktorch.torch_distributed\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("word = 'there'\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path / "script.py"


def flambeau(*arguments: str) -> str:
    command = [sys.executable, "-m", "flambeau", "run", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_drivers_script_runs_in_one_process_that_is_no_rank(script: Path) -> None:
    script.write_text(SCRIPT + "import os\nassert 'RANK' not in os.environ")
    assert flambeau("--alias", "sparktorch", str(script), "-n", "3") == PRINTED


def test_a_script_for_several_processes_has_its_aliases_too(script: Path) -> None:
    arguments = ["sparktorch", str(script), "-n", "3"]
    done = subprocess.check_output(
        [sys.executable, aliased_program.__file__, *arguments], text=True
    )
    assert done == PRINTED


def test_what_workers_need_loads_no_spark() -> None:
    code = (
        "import sys; from flambeau.compat.sparktorch import criterion, serialize_torch_obj; "
        "print('pyspark' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_without_pyspark_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; import flambeau.compat.sparktorch as ours; "
        "ours.serialize_torch_obj; ours.SparkTorch"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "needs pyspark: pip install 'flambeau[spark]'" in done.stderr


def test_a_worker_loads_no_kernels_before_it_has_tables() -> None:
    code = (
        "import sys, flambeau.roles.worker, flambeau.models; "
        "print([name for name in ('numba', 'flambeau.parameter_server') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
