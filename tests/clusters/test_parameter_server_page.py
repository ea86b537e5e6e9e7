"""The commands of the page for users of PyTorch-parameter-server, on small data and three hosts."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sshd
from scipy.io import savemat

PAGE = Path(__file__).parents[2] / "docs/guide/moving-from-pytorch-parameter-server.md"
SECONDS = 240
ON_HOSTS = "cluster.ssh.hosts=hosts.txt"
SMALL = ["max_steps=4", "checkpoints.every_steps=2", "batch_size=4", "observe.tensorboard=false"]


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def make_data(folder: Path) -> None:
    """All data sets of the page, with 64 rows to train on and 8 to test with."""
    rng = np.random.default_rng(0)
    mnist, cifar, svhn = (folder / name for name in ("mnist", "cifar-10-batches-bin", "svhn"))
    for place in (mnist, cifar, svhn):
        place.mkdir(parents=True)
    for split, rows in (("train", 64), ("t10k", 8)):
        write_idx(mnist / f"{split}-images-idx3-ubyte", rng.integers(0, 256, (rows, 28, 28)))
        write_idx(mnist / f"{split}-labels-idx1-ubyte", rng.integers(0, 10, rows))
    for name, rows in (("data_batch_1", 64), ("test_batch", 8)):
        records = np.hstack([rng.integers(0, 10, (rows, 1)), rng.integers(0, 256, (rows, 3072))])
        (cifar / f"{name}.bin").write_bytes(records.astype(np.uint8).tobytes())
    for split, rows in (("train", 64), ("test", 8)):
        pixels = rng.integers(0, 256, (32, 32, 3, rows)).astype(np.uint8)
        labels = rng.integers(1, 11, (rows, 1)).astype(np.uint8)
        savemat(svhn / f"{split}_32x32.mat", {"X": pixels, "y": labels}, do_compression=True)


def commands() -> list[list[str]]:
    """The commands of the page in their order."""
    return [
        shlex.split(line) for line in re.findall(r"^ {4}(flambeau .*)$", PAGE.read_text(), re.M)
    ]


@pytest.fixture(scope="module")
def folder(ssh_hosts: sshd.SshHosts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the job files of the page, data, hosts, and an ssh that knows them."""
    folder = tmp_path_factory.mktemp("project")
    make_data(folder / "data")
    for name, text in re.findall(r"^```yaml\n# (\S+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S):
        (folder / name).write_text(text)
    (folder / "hosts.txt").write_text("node1\nnode2\n")
    program = folder / "bin/ssh"
    program.parent.mkdir()
    config = shlex.split(ssh_hosts.ssh)[1:]
    program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {shlex.join(config)} "$@"\n')
    program.chmod(0o755)
    return folder


def test_the_commands_of_the_page_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=":")
    monkeypatch.setenv("PYTHONPATH", str(sshd.SOURCES))
    shown = {}
    for words in commands():
        small = SMALL if words[1] == "train" else []
        # One job on the hosts is enough.
        run = [word for word in words if "run_dir=runs/svhn" not in words or word != ON_HOSTS]
        done = subprocess.run(
            [sys.executable, "-m", *run, *small],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        shown[shlex.join(words)] = done.stdout
    assert "2 hosts can take part" in shown["flambeau hosts check hosts.txt"]
    assert "nothing is copied" in shown["flambeau hosts sync hosts.txt"]
    assert "[node2] mnist" in shown["flambeau hosts run hosts.txt --here -- ls data"]
    for run in ("lenet", "resnet", "svhn"):
        assert (folder / f"runs/{run}/best.json").is_file()
    assert "top5" in shown["flambeau evaluate runs/resnet@best"]
