"""Real launchers: their processes find each other by themselves, and end together."""

import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from places import Place, await_file, finish

FLAMBEAU = (sys.executable, "-m", "flambeau")
SCRIPT = """\
import os
import sys
import torch.distributed as dist

dist.init_process_group("gloo")
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
said = [os.environ[name] for name in names]
words = " ".join(map(str, ["I am", *said, dist.get_world_size(), sys.argv[1:]]))
# In one piece: lines of ranks would mix otherwise.
print(words + "\\n", end="", flush=True)
dist.barrier()
dist.destroy_process_group()
if sys.argv[1:] == ["fail"] and os.environ["RANK"] == "1":
    sys.exit(7)
"""

HOROVOD = """\
import horovod.torch as hvd
import torch

hvd.init()
every = hvd.allgather(torch.tensor([[hvd.rank(), hvd.local_rank(), hvd.cross_rank()]]))
total = hvd.allreduce(torch.tensor(hvd.rank() + 1.0), op=hvd.Sum, name="total").item()
# In one piece: lines of ranks would mix otherwise.
words = f"rank {hvd.rank()} of {hvd.size()} has {total} {every.tolist()}"
print(words + "\\n", end="", flush=True)
"""


JOB = """\
model: conformance_job:Net
train: conformance_job:rows
valid: conformance_job:rows
loss: cross_entropy
metrics: [accuracy]
batch_size: 16
"""


@pytest.fixture(params=["torchrun", "mpich", "slurm"])
def launcher(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


def test_its_processes_work_on_one_job(launcher: Place, tmp_path: Path) -> None:
    done = launcher.run("finds_others", tmp_path, workers=3)
    assert done.code == 0, done.output
    assert len(done.found) == 3, done.output
    for process in done.found:
        found = process["finds_others"]
        assert process == done.found[0]
        assert found["workers"] == [3, 3]
        assert found["accuracy"] > 0.7
    assert not (tmp_path / ".flambeau").exists()


def test_a_script_attaches(launcher: Place, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    command = (*FLAMBEAU, "run", str(path), "fail")
    done = finish(launcher.start(*command, folder=tmp_path, workers=2))
    assert done.code != 0, done.output
    for rank in range(2):
        assert f"I am {rank} 2 {rank} 2 0 2 ['fail']" in done.output, done.output
    assert "worker 1 exited with code 7" in done.output, done.output


def test_a_script_of_horovods_attaches(launcher: Place, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(HOROVOD)
    command = (*FLAMBEAU, "run", "--alias", "horovod", "script.py")
    done = finish(launcher.start(*command, folder=tmp_path, workers=2))
    assert done.code == 0, done.output
    for rank in range(2):
        assert f"rank {rank} of 2 has 3.0 [[0, 0, 0], [1, 1, 0]]" in done.output, done.output


def test_processes_of_a_launcher_are_ranks_of_horovods(openmpi: Place, tmp_path: Path) -> None:
    script = HOROVOD.replace("horovod.torch", "flambeau.compat.horovod")
    (tmp_path / "script.py").write_text(script)
    done = finish(openmpi.start(sys.executable, "script.py", folder=tmp_path, workers=3))
    assert done.code == 0, done.output
    for rank in range(3):
        assert f"rank {rank} of 3 has 6.0" in done.output, done.output


def test_the_command_line_works_in_all_processes(
    mpich: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    folders = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))

    def flambeau(*arguments: str) -> str:
        done = finish(mpich.start(*FLAMBEAU, *arguments, folder=tmp_path))
        assert done.code == 0, done.output
        return done.output

    assert flambeau("train", "job.yaml").count("run directory: runs/job") == 1
    assert json.loads((tmp_path / "runs/job/report.json").read_text())["workers"] == 2
    shown = flambeau("predict", "runs/job", "conformance_job:rows", "--out", "scores")
    assert shown.count("400 rows written to scores") == 1
    assert flambeau("evaluate", "runs/job").count("accuracy") == 1
    wrong = finish(mpich.start(*FLAMBEAU, "train", "job.yaml", "loss=no", folder=tmp_path))
    assert wrong.code != 0


def test_a_lost_process_ends_the_job_and_is_named(
    slurm: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = slurm.begin("lasts", tmp_path, workers=3)
    await_file(tmp_path / "lasts" / "run" / "begun", process)
    _process_of(2).send_signal(signal.SIGKILL)
    done = finish(process)
    assert done.code != 0, done.output
    assert "rank 2 on n3" in done.output, done.output
    assert "a launcher starts no other" in done.output, done.output
    monkeypatch.setenv("STEPS", "40")
    monkeypatch.setenv("RUN_DIR", str(tmp_path / "lasts" / "run"))
    resumed = slurm.run("resumes", tmp_path, workers=3)
    assert resumed.code == 0, resumed.output


def _process_of(rank: int) -> psutil.Process:
    """The process that Slurm, which is not of this one's, has started."""
    for process in psutil.process_iter(["environ", "cmdline"]):
        environ = process.info["environ"] or {}
        words = process.info["cmdline"] or []
        if environ.get("SLURM_PROCID") == str(rank) and "lasts" in words:
            return process
    raise AssertionError("no such process")
