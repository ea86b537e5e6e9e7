"""The command line as a user meets it: programs, their output, and their exit codes."""

import json
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image

from flambeau.data.generated import generate_clicks

pytestmark = pytest.mark.usefixtures("loaded_once")

EXAMPLES = Path(__file__).parents[2] / "examples"
FLAMBEAU = [sys.executable, "-m", "flambeau"]

NETS = """
import time
import numpy as np
import torch
from flambeau import Callback

class Net(torch.nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Linear(width, 2))

    def forward(self, x):
        return self.layers(x)

def rows(count=32):
    x = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
    return x, (x.sum(axis=1) > 0).astype(np.int64)

def batches(share):
    x, y = map(torch.from_numpy, rows())
    return [(x[start : start + 8], y[start : start + 8])
            for start in range(8 * share.index, 32, 8 * share.count)]

def broken():
    raise KeyError("no such luck")

class Slow(Callback):
    def on_step_end(self, view):
        time.sleep(0.05)
"""

JOB = """
model: nets:Net
args: {width: 8}
train: nets:rows
valid: nets:rows
loss: cross_entropy
metrics: [accuracy]
optimizer: {name: sgd, lr: 1e-1}
batch_size: 8
observe: {tensorboard: false}
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A current directory beside the folder of a job file and its module."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/nets.py").write_text(NETS)
    (tmp_path / "jobs/job.yaml").write_text(JOB)
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def flambeau(
    work: Path, *arguments: str, code: int = 0, program: list[str] = FLAMBEAU
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*program, *arguments], cwd=work, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def train(work: Path, *overrides: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return flambeau(work, "train", "../jobs/job.yaml", *overrides, code=code)


def test_train_then_evaluate_and_predict(work: Path) -> None:
    shown = train(work, "keys=[]").stdout
    assert re.search(r"^accuracy: [\d.]+$", shown, re.MULTILINE)
    assert "tensorboard --logdir runs/job/tensorboard" in shown

    scores = json.loads(flambeau(work, "evaluate", "runs/job@latest", "--json").stdout)
    assert (scores["rows"], scores["checkpoint"]) == (32, "step-00000004")
    assert f"accuracy: {scores['metrics']['accuracy']:.6g}" in shown

    options = ["nets:rows", "--option", "count=5"]
    said = flambeau(work, "predict", "runs/job", *options, "--out", "scores.parquet")
    assert said.stdout == "5 rows written to scores.parquet, predicted by step-00000004\n"
    table = pyarrow.parquet.read_table(work / "scores.parquet")
    assert table.column_names == ["y", "prediction", "probabilities"]

    table_shown = flambeau(work, "evaluate", "runs/job", *options, "--metric", "top5").stdout
    assert "top5" in table_shown
    assert "accuracy" not in table_shown


def test_follow_evaluates_every_checkpoint_and_ends_with_the_run(work: Path) -> None:
    train(work, "epochs=2")
    shown = flambeau(work, "evaluate", "runs/job", "--follow", "--metric", "accuracy").stderr
    assert [line.split("  ")[0] for line in shown.splitlines()] == ["step 4", "step 8"]
    assert (work / "runs/job/tensorboard/evaluator-other").is_dir()


def test_follow_may_begin_before_the_run_and_ends_with_it(work: Path) -> None:
    command = [*FLAMBEAU, "evaluate", "runs/job", "--follow", "--metric", "accuracy"]
    with subprocess.Popen(command, cwd=work, stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stderr is not None
        assert follower.stderr.readline().startswith("waiting for a run in runs/job")
        train(work, "epochs=6", "checkpoints.keep=1", "evaluator=false")
        shown = follower.communicate(timeout=120)[1]
    assert follower.returncode == 0, shown
    evaluated = set(re.findall(r"^step (\d+)", shown, re.MULTILINE))
    missed = {str(int(step)) for step in re.findall(r"step-(\d{8})", shown)}
    assert evaluated | missed == {"4", "8", "12", "16", "20", "24"}
    assert "24" in evaluated


def test_follow_ends_with_a_run_that_was_killed(work: Path) -> None:
    train(work, "epochs=2")
    (work / "runs/job/report.json").unlink()
    (work / "runs/job/.lock").write_text(f"{2**22 + 1} on {socket.gethostname()}")
    flambeau(work, "evaluate", "runs/job", "--follow")


def test_without_tensorboard_there_is_no_folder_for_it(work: Path) -> None:
    train(work, "max_steps=1")
    assert not (work / "runs/job/tensorboard").exists()


def test_two_workers_and_a_function_of_a_shard(work: Path) -> None:
    train(work, "train=nets:batches", "cluster.local.workers=2", "metrics=[]")
    report = json.loads((work / "runs/job/report.json").read_text())
    assert report["rows"]["applied"] == 32


def test_the_driver_of_a_job_file_does_not_load_torch(work: Path) -> None:
    snippet = (
        "import sys; from flambeau.cli import main\n"
        "try: main()\n"
        "finally: print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = flambeau(
        work,
        "train",
        "../jobs/job.yaml",
        "max_steps=1",
        "observe.report=false",
        program=[sys.executable, "-c", snippet],
    )
    assert done.stdout.splitlines()[-1] == "False False"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("args.widht=3", "unexpected keyword argument 'widht'; its signature is Net(width=4)"),
        ("train=nothing/*.csv", "no file matches 'nothing/*.csv'"),
    ],
)
def test_a_mistake_that_a_worker_finds_is_shown_without_a_trace(
    work: Path, override: str, message: str
) -> None:
    shown = train(work, override, code=2).stderr
    assert message in shown
    assert "Traceback" not in shown
    assert shown.count("error: ") == shown.count(message) == 1


def test_a_mistake_in_the_job_file_starts_no_process(work: Path) -> None:
    shown = train(work, "epocs=3", "init_from=runs/no", code=2).stderr
    assert shown == "error: command line: unknown key 'epocs'; did you mean 'epochs'?\n"
    shown = train(work, "init_from=runs/no", code=2).stderr
    assert shown == "error: init_from: there is no run runs/no\n"


def test_a_workers_exception_is_shown_once(work: Path) -> None:
    shown = train(work, "train=nets:broken", code=1).stderr
    assert shown.count("Traceback") == 1
    assert shown.endswith("KeyError: 'no such luck'\nerror: worker 0 failed\n")


def test_a_run_is_not_overwritten(work: Path) -> None:
    train(work, "max_steps=1")
    shown = train(work, "--resume", "never", code=2).stderr
    assert "choose another run_dir" in shown
    shown = train(work, "--run-dir", "runs/other", "--resume", "always", code=2).stderr
    assert "holds no run to resume" in shown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_says_how_to_go_on(
    work: Path, number: signal.Signals, code: int
) -> None:
    command = [*FLAMBEAU, "train", "../jobs/job.yaml", "epochs=1000", "callbacks=[nets:Slow]"]
    with subprocess.Popen(command, cwd=work, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        killer = threading.Timer(100, process.kill)
        killer.start()
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("step 1/"):
                process.send_signal(number)
        killer.cancel()
    assert process.returncode == code, "".join(lines)
    if number is signal.SIGINT:
        assert lines[-1] == "Stopped. Run the same command to resume (runs/job).\n"


SCRIPT = """
import os, sys
import torch.distributed as dist
dist.init_process_group("gloo")
print(sys.argv[1:], dist.get_world_size(), os.environ["RANK"], flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def test_run_gives_the_script_its_arguments_and_a_process_group(work: Path) -> None:
    (work / "script.py").write_text(SCRIPT)
    shown = flambeau(work, "run", "-n", "2", "script.py", "--help", "-n", "7").stderr
    lines = [line for line in shown.splitlines() if line.startswith("[worker")]
    expected = "['--help', '-n', '7'] 2"
    assert sorted(lines) == [f"[worker {rank}] {expected} {rank}" for rank in (0, 1)]


IMPORTS = "import beside; print(beside.__file__)"


ALIAS = ["--alias", "sparktorch"]


@pytest.mark.parametrize("options", [[], ALIAS, [*ALIAS, "-n", "1"]])
@pytest.mark.parametrize("by", ["script", "module"])
def test_run_finds_modules_where_python_does(work: Path, options: list[str], by: str) -> None:
    folder = work / "tools" if by == "script" else work
    (work / "tools").mkdir()
    (work / "tools/program.py").write_text(IMPORTS)
    (folder / "beside.py").touch()
    program = ["tools/program.py"] if by == "script" else ["-m", "tools.program"]
    done = flambeau(work, "run", *options, *program)
    assert str(folder / "beside.py") in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("raise KeyError('no')", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
    ],
)
def test_run_ends_like_its_process(work: Path, script: str, code: int) -> None:
    (work / "script.py").write_text(script)
    flambeau(work, "run", "script.py", code=code)


def test_run_ends_like_the_first_process_that_fails(work: Path) -> None:
    (work / "script.py").write_text("import os, sys; sys.exit(7 * int(os.environ['RANK']))")
    flambeau(work, "run", "-n", "2", "script.py", code=7)


def test_run_starts_all_again_after_a_failure(work: Path) -> None:
    script = """\
        import os, sys
        print("start", os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"])
        sys.exit(int(os.environ["TORCHELASTIC_RESTART_COUNT"]) < 1)
        """
    (work / "script.py").write_text(textwrap.dedent(script))
    shown = flambeau(work, "run", "-n", "2", "--max-restarts", "1", "script.py").stderr
    for rank in range(2):
        for start in range(2):
            assert f"start {rank} {start}" in shown


def test_run_starts_other_programs_and_writes_files(work: Path) -> None:
    command = ["sh", "-c", "echo $RANK of $WORLD_SIZE on $NODE_RANK; exit $((RANK * 4))"]
    shown = flambeau(work, "run", "-n", "2", "--logs", "logs", "--", *command, code=4).stderr
    assert shown.rstrip().endswith("worker 1 exited with code 4")
    assert (work / "logs" / "rank-0.log").read_text() == "0 of 2 on 0\n"
    assert (work / "logs" / "rank-1.log").read_text() == "1 of 2 on 0\n"
    flambeau(work, "run", "there-is-no-such-program", code=2)


def test_doctor_finds_this_machine_usable(work: Path) -> None:
    assert "torch" in flambeau(work, "doctor").stdout


# The examples, on small data of their formats: the job file and the script do the same.


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def make_mnist(folder: Path) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for split, rows in (("train", 32), ("t10k", 16)):
        write_idx(folder / f"{split}-images-idx3-ubyte", rng.integers(0, 256, (rows, 28, 28)))
        write_idx(folder / f"{split}-labels-idx1-ubyte", rng.integers(0, 10, rows))


def make_cifar(folder: Path) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        rows = np.hstack([rng.integers(0, 10, (8, 1)), rng.integers(0, 256, (8, 3072))])
        (folder / f"{name}.bin").write_bytes(rows.astype(np.uint8).tobytes())


def make_images(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for split in ("train", "valid"):
        for kind in ("cats", "dogs"):
            (folder / split / kind).mkdir(parents=True)
            for number in range(4):
                pixels = rng.integers(0, 256, (40, 40, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(folder / split / kind / f"{number}.png")


def make_nothing(folder: Path) -> None:
    """The digits come with scikit-learn; the clicks are made up."""


def make_click_logs(folder: Path) -> None:
    """Seven days of a few rows."""
    generate_clicks(folder, rows=2_800, ids=200)


EXAMPLE_DATA = {
    "digits": ("", make_nothing, "accuracy"),
    "mnist": ("data/mnist", make_mnist, "accuracy"),
    "cifar": ("data/cifar-10-batches-bin", make_cifar, "accuracy"),
    "image_folder": ("data/images", make_images, "accuracy"),
    "clicks": ("", make_nothing, "auc"),
    "recommender": ("clicks", make_click_logs, "auc"),
}


@pytest.mark.parametrize("example", EXAMPLE_DATA)
def test_an_examples_job_file_runs(tmp_path: Path, example: str) -> None:
    folder, make, metric = EXAMPLE_DATA[example]
    make(tmp_path / folder)
    job = EXAMPLES / example / "job.yaml"
    shown = flambeau(tmp_path, "train", str(job), "max_steps=1", "cluster.local.workers=1").stdout
    assert f"{metric}: " in shown
    assert f"run directory: runs/{example}" in shown
    if example == "digits":  # its data is a module that only the job file's folder has
        flambeau(tmp_path, "evaluate", "runs/digits")


@pytest.mark.parametrize("example", EXAMPLE_DATA)
def test_an_examples_script_runs(tmp_path: Path, example: str) -> None:
    folder, make, metric = EXAMPLE_DATA[example]
    make(tmp_path / folder)
    program = [sys.executable, str(EXAMPLES / example / "train.py")]
    shown = flambeau(tmp_path, "--epochs", "1", "--workers", "1", program=program).stdout
    assert shown.startswith(f"{metric} ")


def test_every_example_is_tested() -> None:
    # tests/unit/runs/test_serving_example.py, test_daily_example.py, test_criteo.py,
    # tests/clusters/test_spark*.py
    elsewhere = {"serving", "daily", "criteo", "spark", "sparktorch"}
    assert set(EXAMPLE_DATA) | elsewhere == {
        path.name for path in EXAMPLES.iterdir() if path.is_dir()
    }
