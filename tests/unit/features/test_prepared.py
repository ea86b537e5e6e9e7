"""Prepared folders: what they hold, and what of them is used again."""

import contextlib
import itertools
import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flambeau.features as ft
from flambeau.data.prepared_files import prepared_by, prepared_folder
from flambeau.errors import DataError
from flambeau.features.operation import Operation
from flambeau.features.preparing import prepared
from flambeau.features.preparing.preparation import Preparation
from flambeau.features.preparing.prepared import TAKEN, Prepared, open_prepared, prepare_folder
from flambeau.features.preparing.stage_runner import Progress, Todo
from flambeau.features.raw_data import open_rows
from flambeau.features.splits import Split
from flambeau.observe import Event, Observer

OPERATIONS = [ft.Categorify(["user", "item"], min_count=2)]
SPLIT = ft.by_time("time", valid=0.2, test=0.2)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Three files with two shards each, which are parts of their own."""
    monkeypatch.setattr(prepared, "PART_ROWS", 100)
    rng = np.random.default_rng(0)
    (tmp_path / "logs").mkdir()
    for day in range(3):
        table = pa.table(
            {
                "user": [f"u{x}" for x in rng.zipf(1.5, 200) % 40],
                "item": rng.zipf(1.5, 200) % 60,
                "time": np.sort(rng.integers(0, 100, 200)) + 100 * day,
            }
        )
        pq.write_table(table, tmp_path / "logs" / f"day_{day}.parquet", row_group_size=100)
    return str(tmp_path / "logs" / "*.parquet")


class Here:
    """Does the work in this process, and remembers it; it may fail after some pieces."""

    def __init__(self, most: int | None = None) -> None:
        self.done: list[tuple[str, int]] = []
        self._most = most

    def __call__(self, job: Preparation, todo: Sequence[Todo], progress: Progress) -> None:
        for each in todo:
            stage = progress.begin(each)
            for piece in reversed(each.pieces):  # any order will do
                if self._most is not None and len(self.done) >= self._most:
                    raise InterruptedError
                job.do(each.step, piece, stage.add_rows)
                stage.note_memory("here", 1 << 20)
                stage.piece_done()
                self.done.append((each.step.kind, piece))


def prepare(
    files: str,
    out: Path,
    run: Here | None = None,
    split: Split | None = SPLIT,
    operations: Sequence[Operation] = OPERATIONS,
) -> Prepared:
    return prepare_folder(open_rows(files), operations, split, out, 1 << 20, run or Here())


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != TAKEN
    }


def test_it_holds_every_row_once_with_the_features_of_the_training_rows(
    files: str, tmp_path: Path
) -> None:
    found = prepare(files, tmp_path / "out")
    raw = pq.read_table(str(Path(files).parent))
    assert found.rows == {"train": 361, "valid": 120, "test": 119}  # equal times stay together
    parts = {name: pq.read_table(tmp_path / "out" / name) for name in found.rows}
    times = sorted(time for part in parts.values() for time in part["time"].to_pylist())
    assert times == sorted(raw["time"].to_pylist())
    cut = max(parts["train"]["time"].to_pylist())
    train = raw.filter(pa.compute.less_equal(raw["time"], cut))
    expected = ft.Pipeline(OPERATIONS).fit(train)
    assert ft.Pipeline.load(tmp_path / "out" / "pipeline").digest == expected.digest
    order = ["time", "user", "item"]
    features = expected.transform(train).select(order)
    assert sorted(zip(*parts["train"].select(order).to_pydict().values(), strict=True)) == sorted(
        zip(*features.to_pydict().values(), strict=True)
    )


def test_rows_to_train_on_are_shuffled_and_others_are_in_order(files: str, tmp_path: Path) -> None:
    found = prepare(files, tmp_path / "out")
    train = pq.read_table(sorted(Path(found.train).iterdir())[0])["time"].to_pylist()
    assert train != sorted(train)
    valid = pq.read_table(str(found.valid))["time"].to_pylist()
    assert valid == sorted(valid)


@pytest.mark.parametrize("most", [0, 1, 5, 8, 11])
def test_what_was_interrupted_is_resumed_with_what_is_missing(
    most: int, files: str, tmp_path: Path
) -> None:
    whole = Here()
    prepare(files, tmp_path / "whole", whole)
    first, second = Here(most), Here()
    with pytest.raises(InterruptedError):
        prepare(files, tmp_path / "out", first)
    prepare(files, tmp_path / "out", second)
    assert sorted(first.done + second.done) == sorted(whole.done)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_finished_folder_is_used_as_it_is(files: str, tmp_path: Path) -> None:
    first = prepare(files, tmp_path / "out")
    again = Here()
    assert prepare(files, tmp_path / "out", again) == first
    assert not again.done


def test_other_operations_start_anew_and_say_why(files: str, tmp_path: Path) -> None:
    prepare(files, tmp_path / "out")
    with pytest.warns(UserWarning, match="prepared anew: operations changed"):
        prepare(files, tmp_path / "out", operations=[ft.Categorify("user")])
    with pytest.warns(UserWarning, match="prepared anew: split changed"):
        found = prepare(files, tmp_path / "out", split=None, operations=[ft.Categorify("user")])
    assert found.rows["valid"] == 0
    assert found.valid is None
    assert not (tmp_path / "out" / "valid").exists()


def test_other_data_starts_anew(files: str, tmp_path: Path) -> None:
    prepare(files, tmp_path / "out")
    first = sorted(Path(files).parent.iterdir())[0]
    pq.write_table(pq.read_table(first).slice(0, 150), first, row_group_size=100)
    with pytest.warns(UserWarning, match="prepared anew: data changed"):
        assert sum(prepare(files, tmp_path / "out").rows.values()) == 550


@pytest.mark.parametrize("before", [None, OPERATIONS])
def test_a_kill_between_any_two_changes_of_files_is_no_obstacle(
    before: Sequence[Operation] | None, files: str, tmp_path: Path
) -> None:
    """It begins in a new folder, or in one whose features are to be replaced."""
    other = [ft.Categorify("user")]
    prepare(files, tmp_path / "whole", operations=other)
    for most in itertools.count():
        out = tmp_path / str(most)
        if before is not None:
            prepare(files, out, operations=before)
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            left = iter(range(most))
            for module, name in ((prepared, "write_atomically"), (shutil, "rmtree")):
                patch.setattr(module, name, stopping(getattr(module, name), left))
            with contextlib.suppress(InterruptedError):
                prepare(files, out, operations=other)
            if next(left, None) is not None:
                break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prepare(files, out, operations=other)
        assert contents(out) == contents(tmp_path / "whole")
        assert not (out / prepared.WORK).exists()
    assert most > 2


def stopping(change: Callable[..., None], left: Iterator[int]) -> Callable[..., None]:
    """Return a change of files that fails as if the process were killed, once none are left."""

    def changed(*args: Any, **options: Any) -> None:
        if next(left, None) is None:
            raise InterruptedError
        change(*args, **options)

    return changed


def test_a_folder_with_other_files_is_left_alone(files: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    with pytest.raises(DataError, match="has files that are no prepared features"):
        prepare(files, tmp_path / "out")


def test_files_name_the_pipeline_that_made_them(files: str, tmp_path: Path) -> None:
    found = prepare(files, tmp_path / "out")
    digest = ft.Pipeline.load(tmp_path / "out" / "pipeline").digest
    assert prepared_by(found.train) == digest
    assert prepared_by(str(next(Path(found.train).iterdir()))) == digest
    assert prepared_folder(files) is None
    values = json.loads((tmp_path / "out" / "prepared.json").read_bytes())
    assert values["rows"] == found.rows


def test_a_split_that_leaves_nothing_to_train_on_is_an_error(files: str, tmp_path: Path) -> None:
    split = ft.by_hash("time", valid=0.999999)
    with pytest.raises(DataError, match="no rows to train on"):
        prepare(files, tmp_path / "out", split=split, operations=[])


class Seen(Observer):
    """Remembers what it was sent."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def close(self) -> None:
        pass


def test_what_each_stage_took_is_kept_beside_the_features(files: str, tmp_path: Path) -> None:
    found = prepare(files, tmp_path / "out")
    titles = ["gather statistics 1", "finish statistics 1", "gather statistics 2"]
    titles += ["finish statistics 2", "write features"]
    assert [stage.stage for stage in found.stages] == titles
    assert [stage.rows for stage in found.stages] == [600, 0, 600, 0, 600]
    assert all(stage.peak_bytes == 1 << 20 for stage in found.stages)
    assert found.summary["seconds"] == sum(stage.seconds for stage in found.stages)
    assert found.sizes.keys() == {"user", "item"}
    again = open_prepared(tmp_path / "out")
    assert (again.stages, again.sizes) == (found.stages, found.sizes)


def test_seconds_of_an_interrupted_stage_are_added_to_those_of_its_end(
    files: str, tmp_path: Path
) -> None:
    with pytest.raises(InterruptedError):
        prepare(files, tmp_path / "out", Here(2))
    found = prepare(files, tmp_path / "out")
    assert [stage.rows for stage in found.stages] == [600, 0, 600, 0, 600]


def test_progress_is_reported_from_the_first_to_the_last_stage(files: str, tmp_path: Path) -> None:
    seen = Seen()
    rows = open_rows(files)
    prepare_folder(rows, OPERATIONS, SPLIT, tmp_path / "out", 1 << 20, Here(), observer=seen)
    assert seen.events[0].kind == "preparation"
    assert seen.events[0].fields["rows"] == 600
    ends = [event.fields for event in seen.events if event.kind == "stage_end"]
    assert [(each["number"], each["stages"]) for each in ends] == [(n, 5) for n in range(1, 6)]
    assert seen.events[-1].kind == "prepared"
    assert seen.events[-1].fields["rows"] == {"train": 361, "valid": 120, "test": 119}


def test_files_that_killed_processes_left_are_removed(files: str, tmp_path: Path) -> None:
    with pytest.raises(InterruptedError):
        prepare(files, tmp_path / "out", Here(most=18))
    left = tmp_path / "out" / "train" / ".part-000003.parquet.123"
    left.write_bytes(b"half")
    prepare(files, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.123"))


def test_rows_in_memory_that_have_changed_are_prepared_anew(tmp_path: Path) -> None:
    """Equally many rows with the same columns and types are other data if a value differs."""
    out = tmp_path / "out"
    table = pa.table(
        {"user": pa.array(["a", "b", None, "a"]).dictionary_encode(), "n": [1, 2, 3, 4]}
    )
    run = Here()

    def sizes(data: pa.Table) -> int:
        operations = [ft.Categorify("user")]
        return prepare_folder(open_rows(data), operations, None, out, 1 << 20, run).sizes["user"]

    assert sizes(table) == 3
    done = len(run.done)
    assert sizes(table) == 3
    assert len(run.done) == done
    other = pa.array(["a", "c", "b", "a"]).dictionary_encode()
    with pytest.warns(UserWarning, match="data changed"):
        assert sizes(table.set_column(0, "user", other)) == 4


@pytest.mark.parametrize(
    ("operations", "split", "message"),
    [
        ([ft.Categorify("usr")], SPLIT, "no column 'usr'"),
        ([ft.Log("user")], SPLIT, "log: column 'user'"),
        (OPERATIONS, ft.by_hash("usr", valid=0.1), "no column 'usr'"),
        (OPERATIONS, ft.by_time("usr", valid=0.1), "no column 'usr'"),
        (OPERATIONS, ft.by_file(train="week_*"), "no file matches"),
    ],
)
def test_a_mistake_leaves_what_was_prepared_before(
    operations: list[Operation], split: Split, message: str, files: str, tmp_path: Path
) -> None:
    prepare(files, tmp_path / "out")
    before = contents(tmp_path / "out")
    with pytest.raises(DataError, match=message):
        prepare(files, tmp_path / "out", split=split, operations=operations)
    assert contents(tmp_path / "out") == before
