"""Jobs on a real Ray: what is lost and replaced, lack of room, Ray Datasets, Tune, commands."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
import ray
import ray.data
import ray_nodes
from ray.data.extensions import ArrowTensorArray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)
from ray_nodes import Nodes
from ray_state import Agent, agents, eventually, groups, live_hosts, unfinished_agents
from ray_toys import (
    ImageNet,
    Numbers,
    images,
    rows,
    starts,
    sum_of_ranks,
    uneven_dataset,
)
from struck_jobs import EPOCHS, QUIET, ROWS, events, fit

import flambeau as fb
from flambeau.clusters.ray.blocks import batches_of, deal_out
from flambeau.errors import ConfigError, DataError

HERE = Path(__file__).parent
LONG = 240.0


@pytest.fixture
def clean(joined: Nodes) -> Iterator[Nodes]:
    """A Ray of two nodes, on which a test leaves no agent and no placement group."""
    yield joined
    eventually(lambda: not unfinished_agents() and not groups(), 10)


@pytest.fixture
def third_node(clean: Nodes) -> Iterator[str]:
    """The address of a node with a core more than the others, which a test may kill."""
    host = "127.0.0.4"
    clean.add(host, cores=3)
    eventually(lambda: host in live_hosts())
    yield host
    if host in clean.started:
        clean.kill(host)
    eventually(lambda: host not in live_hosts())


# Actors and nodes that are lost


class Loss:
    """Kills one of the agents while they work, and notes the others, and who is there afterwards.

    It is the one on a host, or any that has started processes.
    """

    def __init__(self, kill: Callable[[Agent], None], host: str | None = None) -> None:
        self._kill, self._host = kill, host
        self.others: set[Agent] = set()
        self.after: set[Agent] = set()

    def __call__(self) -> None:
        before = agents()
        victim = next(agent for agent in before if self._is_victim(agent))
        self.others = before - {victim}
        self._kill(victim)
        eventually(lambda: victim not in agents())
        eventually(lambda: len(agents()) == len(before))
        self.after = agents()

    def _is_victim(self, agent: Agent) -> bool:
        if self._host is not None:
            return agent.host == self._host
        return bool(psutil.Process(agent.pid).children())


def test_a_killed_actor_is_replaced_alone_and_all_continue_from_the_last_checkpoint(
    clean: Nodes, tmp_path: Path
) -> None:
    loss = Loss(lambda agent: os.kill(agent.pid, signal.SIGKILL), "127.0.0.3")
    result = fit(tmp_path, fb.Ray(2, placement="spread"), loss, epochs=2)
    assert (result.report["status"], result.report["restarts"]) == ("finished", 1)
    assert result.report["rows"]["applied"] == ROWS * 2
    assert loss.others < loss.after
    again = starts(tmp_path)[2:]
    assert sorted(rank for rank, _ in again) == [0, 1]
    assert {step for _, step in again} < {5, 10, 15, 20}


def test_a_killed_actor_is_replaced_while_asynchronous_workers_of_its_node_train(
    clean: Nodes, tmp_path: Path
) -> None:
    loss = Loss(Agent.kill)
    strategy = fb.ParameterServer(servers=2, consistency="asynchronous")
    result = fit(tmp_path, fb.Ray(2, placement="pack"), loss, strategy=strategy)
    assert (result.report["status"], result.report["restarts"]) == ("finished", 1)
    assert loss.others < loss.after
    assert len(events(tmp_path, "generation")) == 1
    ranks = [rank for rank, _ in starts(tmp_path)]
    assert min(ranks.count(0), ranks.count(1)) == 1  # the other worker has not started again
    counts = result.report["rows"]
    trained = counts["applied"] + counts["dropped"] + counts.get("lost", 0)
    assert trained == ROWS * EPOCHS
    assert counts["read"] == trained + counts["repeated"]


def test_the_agent_of_a_lost_node_starts_elsewhere_with_the_same_rows(
    clean: Nodes, third_node: str, tmp_path: Path
) -> None:
    (node,) = (node for node in ray.nodes() if node["NodeManagerAddress"] == third_node)
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
    x, y = rows(ROWS)
    columns = {name: x[:, column] for column, name in enumerate("abcd")}
    block = ray.remote(lambda: pa.table({**columns, "y": y}))
    train = ray.data.from_arrow_refs([block.options(scheduling_strategy=there).remote()])
    more = {"train": train, "inputs": {"x": ["a", "b", "c", "d"]}, "label": "y"}
    loss = Loss(lambda agent: clean.kill(agent.host), third_node)
    result = fit(tmp_path, fb.Ray(3, placement="spread"), loss, **more)
    assert (result.report["status"], result.report["restarts"]) == ("finished", 1)
    assert result.report["rows"]["applied"] == ROWS * EPOCHS
    assert loss.others < loss.after
    assert {event["host"] for event in events(tmp_path, "worker_lost")} == {third_node}


def test_a_lost_node_without_room_elsewhere_ends_the_job(
    clean: Nodes, third_node: str, tmp_path: Path
) -> None:
    lost: list[float] = []

    def lose() -> None:
        clean.kill(third_node)
        lost.append(time.monotonic())

    cluster = fb.Ray(1, cores_per_worker=3, start_timeout=8)
    lack = r"1 agent of 1 did not join within 8 s.* has 4 cores free, and each needs 3 cores"
    with pytest.raises(ConfigError, match=lack):
        fit(tmp_path, cluster, lose, epochs=100)
    assert time.monotonic() - lost[0] < 30


def test_an_actor_that_does_not_answer_is_killed_at_the_end(
    clean: Nodes, tmp_path: Path, still_running: Callable[[], dict[int, str]]
) -> None:
    stopped: list[int] = []

    def stop() -> None:
        stopped.append(next(agent for agent in agents() if agent.host == "127.0.0.3").pid)
        os.kill(stopped[0], signal.SIGSTOP)

    recovery = {"heartbeat_timeout": 3}
    result = fit(tmp_path, fb.Ray(2, placement="spread"), stop, epochs=1, recovery=recovery)
    assert result.report["status"] == "finished"
    eventually(lambda: not psutil.pid_exists(stopped[0]), 10)
    assert not still_running()


# Lack of room


@pytest.mark.parametrize(
    ("cluster", "lack"),
    [
        (fb.Ray(5), r"needs 1 core for each of 5 workers, and this Ray has only 4 cores on 2"),
        (fb.Ray(1, cores_per_worker=3), r"needs 3 cores for each of 1 worker, .* at most 2 cores"),
        (fb.Ray(1, gpus_per_worker=1), r"needs 1 core, 1 GPU for each of 1 worker, and this"),
    ],
    ids=["workers", "cores", "gpus"],
)
def test_a_cluster_that_is_too_small_is_an_error_at_once(
    clean: Nodes, cluster: fb.Ray, lack: str
) -> None:
    began = time.monotonic()
    with pytest.raises(ConfigError, match=lack):
        fb.run(os.getpid, cluster=cluster)
    assert time.monotonic() - began < 5
    assert not unfinished_agents() + groups()


def test_a_cluster_that_others_use_is_an_error_after_a_while(clean: Nodes) -> None:
    taken = placement_group([{"CPU": 2}, {"CPU": 1}])
    try:
        ray.get(taken.ready(), timeout=LONG)
        eventually(lambda: ray.available_resources().get("CPU") == 1)
        began = time.monotonic()
        lack = r"needs 1 core for each of 2 workers, and after 2 s this Ray has only 1 core on 2"
        with pytest.raises(ConfigError, match=lack):
            fb.run(os.getpid, cluster=fb.Ray(2, resources_timeout=2))
        assert 2 <= time.monotonic() - began < 8
        eventually(lambda: not unfinished_agents() and groups() == ["CREATED"], 5)
    finally:
        remove_placement_group(taken)


def test_a_job_with_more_time_waits_for_a_node_that_is_added(
    clean: Nodes, request: pytest.FixtureRequest
) -> None:
    cluster = fb.Ray(1, cores_per_worker=3, resources_timeout=LONG)
    found: list[list[int]] = []
    job = threading.Thread(target=lambda: found.append(fb.run(os.getpid, cluster=cluster)))
    job.start()
    assert eventually(groups) == ["PENDING"]
    request.getfixturevalue("third_node")
    job.join()
    assert len(found) == 1


def test_functions_of_fb_run_are_ranks_of_horovods(clean: Nodes) -> None:
    assert fb.run(sum_of_ranks, cluster=fb.Ray(2)) == [3.0, 3.0]


def test_an_address_where_no_ray_is_in_use_is_not_silently_ignored(clean: Nodes) -> None:
    with pytest.warns(UserWarning, match=rf"connected to the Ray at {clean.address} already"):
        assert fb.run(int, cluster=fb.Ray(1, address="127.0.0.9:6379")) == [0]


# Ray Datasets


def dataset(columns: dict[str, np.ndarray], *sizes: int) -> "ray.data.Dataset":
    """Return a Ray Dataset whose blocks have these numbers of rows."""
    table = pa.table({**columns, "image": ArrowTensorArray.from_numpy(columns["image"])})
    ends = np.cumsum(sizes)
    return ray.data.from_arrow(
        [table.slice(end - size, size) for end, size in zip(ends, sizes, strict=True)]
    )


@pytest.fixture(scope="module")
def taught(joined: Nodes, tmp_path_factory: pytest.TempPathFactory) -> fb.Result:
    """A model that was trained and validated on Ray Datasets with uneven blocks.

    `made` in the folder of its run has the number of each row that the dataset to train on made.
    """
    folder = tmp_path_factory.mktemp("taught")

    def note(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        with (folder / "made").open("a") as file:
            file.writelines(f"{number}\n" for number in rows["number"].tolist())
        return rows

    return fb.fit(
        ImageNet,
        dataset(images(0, 91), 70, 0, 1, 20).map_batches(note),
        valid=dataset(images(91, 40), 0, 33, 7),
        label="y",
        loss="cross_entropy",
        metrics=["accuracy"],
        batch_size=8,
        cluster=fb.Ray(2),
        callbacks=[Numbers(folder)],
        observe=QUIET,
        run_dir=folder / "run",
    )


def numbers(file: Path) -> list[int]:
    return list(map(int, file.read_text().split()))


def test_each_row_of_uneven_blocks_goes_to_one_worker_and_tensors_keep_their_shape(
    taught: fb.Result,
) -> None:
    one, other = (numbers(file) for file in taught.run_dir.parent.glob("numbers-*"))
    assert sorted(map(len, (one, other))) == [45, 46]
    assert sorted(one + other) == list(range(91))


def test_a_ray_dataset_is_executed_once(taught: fb.Result) -> None:
    assert sorted(numbers(taught.run_dir.parent / "made")) == list(range(91))


def test_a_ray_dataset_to_validate_on(taught: fb.Result) -> None:
    known = taught.evaluate(images(91, 40))
    assert taught.metrics == pytest.approx(known)


def test_predictors_are_mapped_over_a_ray_dataset(clean: Nodes, taught: fb.Result) -> None:
    class Score:
        def __init__(self, run: str, modules: str) -> None:
            sys.path.append(modules)
            self.predictor = fb.Predictor.load(run)

        def __call__(self, batch: dict[str, np.ndarray]) -> pa.Table:
            return self.predictor.predict(batch)

    rows = dataset(images(91, 40), 0, 33, 7)
    where, pool = [str(taught.run_dir), str(HERE)], ray.data.ActorPoolStrategy(size=1)
    found = rows.map_batches(Score, fn_constructor_args=where, compute=pool).take_all()
    known = taught.predict(images(91, 40)).to_pylist()
    assert [row["prediction"] for row in found] == [row["prediction"] for row in known]


def test_rows_come_in_the_order_of_the_dataset_and_not_as_blocks_are_finished(
    clean: Nodes, tmp_path: Path
) -> None:
    made = tmp_path / "made"

    def make(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        while rows["id"][0] == 0 and not made.exists():
            time.sleep(0.02)  # the first block is finished after another one
        if rows["id"][0] > 0:
            made.touch()
        return {"number": rows["id"]}

    rows = ray.data.range(100, override_num_blocks=10).map_batches(make, batch_size=None)
    parts = deal_out(rows, 2)
    found = [batch["number"].to_pylist() for _, batch in batches_of({"0": parts[0], "1": parts[1]})]
    assert [number for each in found for number in each] == list(range(100))


def test_blocks_may_differ_in_the_types_of_columns(clean: Nodes, tmp_path: Path) -> None:
    rows = [{"x": [1.0] * 4, "ids": list(range(number % 3)), "y": 0} for number in range(16)]
    train = ray.data.from_items(rows)  # some blocks have empty lists only
    more = {"train": train, "inputs": ["x"], "label": "y", "epochs": 1}
    result = fit(tmp_path, fb.Ray(2), lambda: None, **more)
    assert result.report["rows"]["applied"] == 16


def test_a_run_that_is_resumed_on_other_rows_begins_its_epoch_again_with_a_warning(
    clean: Nodes, tmp_path: Path
) -> None:
    columns = {"inputs": {"x": list("abcd")}, "label": "y", "epochs": 1}
    train = uneven_dataset()
    fit(tmp_path, fb.Ray(2), lambda: None, train=train, max_steps=5, **columns)
    train = uneven_dataset(shift=1.0)
    result = fit(tmp_path, fb.Ray(2), lambda: None, train=train, **columns)
    counts = result.report["rows"]
    assert (counts["applied"], counts["repeated"]) == (ROWS, 5 * 8 * 2)
    warnings = [event["text"] for event in events(tmp_path, "warning")]
    assert sum("does not have the rows that it had" in text for text in warnings) == 1


@pytest.mark.parametrize("use", ["evaluate", "predict"])
def test_evaluating_and_predicting_with_a_ray_dataset_tells_what_to_do(
    clean: Nodes, taught: fb.Result, use: str
) -> None:
    advice = r"a Ray Dataset is not read in this process: .*write_parquet.*map_batches"
    with pytest.raises(DataError, match=advice):
        getattr(taught, use)(dataset(images(0, 10), 10))


@pytest.mark.parametrize("columns", [None, {"x": [1.0], "y": [0]}], ids=["columns", "rows"])
def test_a_ray_dataset_without_rows_is_an_error(
    clean: Nodes, tmp_path: Path, columns: dict[str, Any] | None
) -> None:
    rows = ray.data.from_items([])
    if columns is not None:
        rows = ray.data.from_arrow(pa.table(columns).slice(0, 0))
    with pytest.raises(DataError, match=r"^train=: the Ray Dataset has no rows"):
        fit(tmp_path, fb.Ray(2), lambda: None, train=rows, label="y")


def test_a_ray_dataset_without_the_label_is_an_error(clean: Nodes, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train= has no column 'yes', which is a label; .*, y$"):
        fit(tmp_path, fb.Ray(2), lambda: None, train=dataset(images(0, 9), 9), label="yes")


# Programs


@dataclass(frozen=True)
class Program:
    """A command that runs."""

    process: subprocess.Popen[str]

    def finish(self) -> str:
        """Wait until it ends; return what it prints."""
        output, _ = self.process.communicate(timeout=LONG)
        assert self.process.returncode == 0, output
        return output

    def found(self) -> Any:
        """Return what it has found, which it prints as JSON."""
        (line,) = (line for line in self.finish().splitlines() if line.startswith("FOUND "))
        return json.loads(line.removeprefix("FOUND "))

    def kill_at(self, mark: Path) -> None:
        """Kill it, but nothing that it has started, as soon as a file is there."""
        eventually(lambda: mark.exists() or self.process.poll() is not None, LONG)
        assert self.process.poll() is None, self.process.communicate()
        self.process.kill()
        self.process.communicate()


def begin(folder: Path, environment: dict[str, str], *command: object) -> Program:
    """Start a command of Python in a folder, where modules of these tests are found."""
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    unset = [name for name in os.environ if name.startswith("RAY_")]
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    process = subprocess.Popen(
        [sys.executable, *map(str, command)],
        env={**inherited, "PYTHONPATH": path, **environment},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Program(process)


def flambeau(nodes: Nodes, folder: Path, *arguments: object) -> str:
    """Run a command of Flambeau on these nodes; return what it prints."""
    return begin(folder, nodes.environment, "-m", "flambeau", *arguments).finish()


def test_a_killed_program_leaves_nothing_and_the_same_one_resumes(
    clean: Nodes, tmp_path: Path, still_running: Callable[[], dict[int, str]]
) -> None:
    command = (HERE / "scripts" / "ray_fit.py", tmp_path)
    begin(tmp_path, clean.environment, *command).kill_at(tmp_path / "begun")
    eventually(lambda: not unfinished_agents() and not groups(), 10)
    assert not still_running()
    found = begin(tmp_path, clean.environment, *command).found()
    assert found["step"] == 39
    (resumed,) = {step for _, step in starts(tmp_path)[2:]}
    assert resumed in {15, 20, 25, 26}  # every 5 steps, and at the end of an epoch


def test_a_program_that_is_resumed_on_a_ray_dataset_equals_one_that_was_never_stopped(
    clean: Nodes, tmp_path: Path
) -> None:
    def program(name: str) -> Program:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return begin(folder, clean.environment, HERE / "scripts" / "ray_fit.py", folder, "dataset")

    program("stopped").kill_at(tmp_path / "stopped" / "begun")
    resumed, whole = program("stopped").found(), program("whole").found()
    (step,) = {step for _, step in starts(tmp_path / "stopped")[2:]}
    assert step > 0
    assert resumed["weights"] == whole["weights"]


@pytest.fixture
def own_folder() -> Iterator[str]:
    """A folder for what Ray writes on a machine."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets have short names
    yield folder
    shutil.rmtree(folder)


def test_without_a_ray_one_is_started_on_a_loopback_address_and_ends_with_the_program(
    tmp_path: Path, own_folder: str
) -> None:
    def processes() -> list[int]:
        found = [
            (each.pid, each.info["environ"] or {}) for each in psutil.process_iter(["environ"])
        ]
        return [pid for pid, environ in found if environ.get("RAY_TMPDIR") == own_folder]

    environment = {"RAY_TMPDIR": own_folder, "HOME": own_folder}
    program = begin(tmp_path, environment, HERE / "scripts" / "ray_fit.py", tmp_path)
    eventually(lambda: (tmp_path / "begun").exists(), LONG)
    assert len(processes()) > 3
    found = program.found()
    assert (found["nodes"], found["step"]) == (["127.0.0.2"], 39)
    eventually(lambda: not processes(), 15)


def test_a_ray_that_was_started_on_this_machine_is_joined(
    two_rays: Nodes, tmp_path: Path, own_folder: str
) -> None:
    (Path(own_folder) / "ray").symlink_to(two_rays.folder)  # where `ray start` notes its address
    environment = {**two_rays.environment, "RAY_ADDRESS": "", "RAY_TMPDIR": own_folder}
    join = "import ray; from flambeau.clusters.ray.cluster import connect; connect(fb.Ray())"
    show = "print('FOUND', sum(node['Alive'] for node in ray.nodes()))"
    program = begin(tmp_path, environment, "-c", f"import flambeau as fb; {join}; {show}")
    assert program.found() == 2


# Trials of Tune


def test_two_trials_of_tune_train_at_once_on_the_cores_that_they_reserve(
    clean: Nodes, tmp_path: Path
) -> None:
    # Both reserve all four cores together, which leaves no room for further placement groups.
    script = HERE / "scripts" / "ray_tune.py"
    one, other = begin(tmp_path, clean.environment, script, tmp_path).found()
    assert max(one["began"], other["began"]) < min(one["ended"], other["ended"])
    assert sorted([one["accuracy"], other["accuracy"]])[1] > 0.9


def test_a_trial_without_room_for_its_workers_tells_how_to_reserve_it(clean: Nodes) -> None:
    @ray.remote(num_cpus=2)
    def trial() -> str:
        try:
            fb.run(os.getpid, cluster=fb.Ray(3, resources_timeout=1))
        except ConfigError as error:
            return str(error)
        return "there was room"

    reserved = placement_group([{"CPU": 2}])
    where = PlacementGroupSchedulingStrategy(reserved, placement_group_capture_child_tasks=True)
    found = ray.get(trial.options(scheduling_strategy=where).remote(), timeout=LONG)
    remove_placement_group(reserved)
    assert "this Ray has only 2 cores on 2 nodes free" in found
    assert "In a trial of Tune, reserve room for them: tune.with_resources(trainable, " in found


# Commands


JOB = """\
model: ray_toys:Net
train: ray_toys:rows
valid: ray_toys:rows
loss: cross_entropy
metrics: [accuracy]
batch_size: 16
"""


@pytest.fixture(scope="module")
def submitted(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a job that was submitted to a Ray with a dashboard."""
    folder, run = tmp_path_factory.mktemp("submitted"), tmp_path_factory.mktemp("runs") / "job"
    shutil.copy(HERE / "ray_toys.py", folder)
    (folder / "job.yaml").write_text(JOB)
    train = [sys.executable, "-m", "flambeau", "train", "job.yaml", "cluster.ray.workers=2"]
    with ray_nodes.running(1, dashboard=True) as nodes:
        server = f"http://127.0.0.2:{nodes.dashboard_port}"
        submit = ["-m", "ray.scripts.scripts", "job", "submit", "--address", server]
        submit += ["--working-dir", ".", "--", *train, f"run_dir={run}"]
        tokens = {name: value for name, value in nodes.environment.items() if "AUTH" in name}
        begin(folder, {**tokens, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}, *submit).finish()
    return run


def test_a_job_is_submitted_to_a_ray(submitted: Path) -> None:
    report = json.loads((submitted / "report.json").read_text())
    assert (report["status"], report["workers"]) == ("finished", 2)


def test_the_commands_evaluate_and_predict(
    two_rays: Nodes, submitted: Path, tmp_path: Path
) -> None:
    where = ("--cluster", "ray", "--workers", "2")
    assert "accuracy" in flambeau(two_rays, tmp_path, "evaluate", submitted, *where)
    data = ("ray_toys:rows", "--out", "scores")
    shown = flambeau(two_rays, tmp_path, "predict", submitted, *data, *where)
    assert "400 rows written to scores" in shown


def test_the_command_run(two_rays: Nodes, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "print('I am', os.environ['RANK'], 'of', dist.get_world_size(), sys.argv[1:])\n"
        "dist.destroy_process_group()\n"
    )
    shown = flambeau(two_rays, tmp_path, "run", "--cluster", "ray", "-n", "2", script, "fast")
    for rank in range(2):
        assert f"I am {rank} of 2 ['fast']" in shown
