"""What a worker loads before it knows its model."""

import subprocess
import sys


def test_a_worker_loads_no_kernels_before_it_has_tables() -> None:
    code = (
        "import sys, flambeau.job.worker, flambeau.models; "
        "print([name for name in ('numba', 'flambeau.parameter_server') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
