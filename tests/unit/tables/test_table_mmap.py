"""Tables in files, larger than the memory a process may have."""

import subprocess
import sys
from pathlib import Path

TRAIN = """
import resource, sys
from pathlib import Path
import numpy as np
from flambeau.config.optimizer import optim
from flambeau.config.tables import TableSpec
from flambeau.tables.table import Table

def table(storage):
    return Table(TableSpec("t", 256, storage=storage), 0, optim("adagrad"), Path(sys.argv[1]))

def train(subject, start):
    ids = np.arange(start, start + 5_000)
    subject.push(ids, np.ones((5_000, 256), np.float32))
    return subject.pull(ids, training=False)

for storage in ("mmap", "memory"):
    train(table(storage), 0)
status = Path("/proc/self/status").read_text()
data = int(status.split("VmData:")[1].split()[0]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (data + (64 << 20), resource.RLIM_INFINITY))

subject = table(sys.argv[2])
first = train(subject, 0)
for start in range(5_000, 100_000, 5_000):
    train(subject, start)
assert subject.nbytes > 200 << 20
assert np.array_equal(subject.pull(np.arange(5_000), training=False), first)
"""


def trained(storage: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", TRAIN, str(folder), storage]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_table_in_files_may_be_larger_than_memory(tmp_path: Path) -> None:
    done = trained("mmap", tmp_path)
    assert done.returncode == 0, done.stderr


def test_one_in_memory_may_not(tmp_path: Path) -> None:
    assert "Cannot allocate memory" in trained("memory", tmp_path).stderr
