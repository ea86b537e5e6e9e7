"""What every cluster does alike. README's table "What runs where" names those that are here."""

import signal
from pathlib import Path
from typing import Any

import pytest
from conformance_job import CRITEO_IDS, CRITEO_ROWS, STRATEGIES
from places import Place, await_file, finish

import flambeau as fb
import flambeau.features as ft
from flambeau.data.generated import generate_clicks

#: What one program does, a job after the other, in the same processes.
SCENARIOS = ("trains", "uses", "raises", "mistaken", "loses_worker")


@pytest.fixture(scope="module")
def played() -> dict[str, list[dict[str, Any]]]:
    """What each process found, by place: programs take their time."""
    return {}


@pytest.fixture
def found(
    place: Place, played: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> list[dict[str, Any]]:
    """What each process of a program found that went through all scenarios."""
    if place.name not in played:
        names = (*SCENARIOS, "frames") if place.has_frames else SCENARIOS
        done = place.run(",".join(names), tmp_path)
        assert done.code == 0, done.output
        assert len(done.found) == place.processes(2), done.output
        played[place.name] = done.found
    return played[place.name]


def test_all_strategies_and_kinds_of_data(found: list[dict[str, Any]]) -> None:
    for process in found:
        assert process["trains"] == found[0]["trains"]  # all processes return the same result
        assert process["trains"].keys() == {*STRATEGIES, "hybrid", "pandas"}
        for name, (accuracy, applied) in process["trains"].items():
            assert accuracy > 0.7, name
            assert applied == 800, name


def test_a_run_is_resumed_evaluated_and_predicted_with(found: list[dict[str, Any]]) -> None:
    for process in found:
        uses = process["uses"]
        assert uses["steps"] == [26, 39]
        assert uses["workers"] == 2
        assert uses["evaluated"] == pytest.approx(uses["accuracy"])
        assert (uses["predicted"], uses["table"]) == (400, 8)
        assert uses["ranks"] == [[0, 2, 2.0], [1, 2, 2.0]]


def test_frames_of_the_engine(place: Place, found: list[dict[str, Any]]) -> None:
    if not place.has_frames:
        pytest.skip(f"{place.name} has no data frames of its own")
    assert found[0]["frames"] == {"applied": 800}


@pytest.fixture(scope="module")
def criteo_digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The pipeline of Criteo's features, fitted by this process."""
    folder = tmp_path_factory.mktemp("logs") / "logs"
    generate_clicks(folder, rows=CRITEO_ROWS, ids=CRITEO_IDS)
    days = fb.files([folder / f"day_{day}.tsv" for day in range(4)], "criteo")
    return ft.criteo(min_count=2).fit(days).digest


def test_criteo_from_raw_logs_to_predictions(
    place: Place, criteo_digest: str, tmp_path: Path
) -> None:
    done = place.run("criteo", tmp_path)
    assert done.code == 0, done.output
    rows = {"prepare": 71_428, "train": 57_142, "evaluate": 7_143, "predict": 7_143}
    expected = {"pipeline": criteo_digest, "rows": rows, "done": True, "learned": True}
    assert done.found == [{"criteo": expected}] * place.processes(2), done.output


def test_a_killed_worker_is_replaced(found: list[dict[str, Any]]) -> None:
    for process in found:
        assert process["loses_worker"] == {"restarts": 1, "status": "finished"}


def test_an_error_of_one_worker_is_that_of_all_processes(
    place: Place, found: list[dict[str, Any]]
) -> None:
    for process in found:
        assert process["raises"]["error"] == "WorkerFailedError"
        where = " (rank 1 on " if place.kind == "attached" else ""
        assert f"worker 1 failed{where}" in process["raises"]["text"]
        assert "RuntimeError: struck on purpose" in process["raises"]["text"]


def test_a_mistake_is_found_before_anything_starts(found: list[dict[str, Any]]) -> None:
    for process in found:
        assert process["mistaken"]["error"] == "ConfigError"
        assert "batch_size=0" in process["mistaken"]["text"]


def test_an_error_is_shown_once(place: Place, tmp_path: Path) -> None:
    if place.kind == "spark":
        pytest.skip("shown by Python itself, as with Local")
    done = place.run("raises", tmp_path)
    assert done.code == 1, done.output
    assert done.output.count("RuntimeError: struck on purpose") == 1, done.output
    others = place.processes(2) - 1
    assert done.output.count("see rank 0: worker 1") == others, done.output


def test_ctrl_c_saves_and_stops(place: Place, tmp_path: Path) -> None:
    _interrupted(place, tmp_path, signal.SIGINT)


def test_sigterm_saves_and_stops_and_another_number_of_workers_resumes(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = _interrupted(place, tmp_path, signal.SIGTERM) + 10
    monkeypatch.setenv("STEPS", str(steps))
    monkeypatch.setenv("RUN_DIR", str(tmp_path / "lasts" / "run"))
    resumed = place.run("resumes", tmp_path, workers=3)
    assert resumed.code == 0, resumed.output
    assert resumed.found == [{"resumes": {"workers": 3, "step": steps}}] * place.processes(3)


def _interrupted(place: Place, folder: Path, number: signal.Signals) -> int:
    """Interrupt a job; the step at which it saved."""
    process = place.begin("lasts", folder)
    run = folder / "lasts" / "run"
    await_file(run / "begun", process)
    place.send_signal(process, number)
    done = finish(process)
    assert done.code != 0, done.output
    saved = [path.name for path in (run / "checkpoints").glob("step-*")]
    assert saved, done.output
    return max(int(name.removeprefix("step-")) for name in saved)
