"""Exports give what their runs give."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file
from small_runs import (
    BINDINGS,
    DeepFm,
    History,
    add_checkpoint,
    clicks,
    some_rows,
    write_run,
    write_zoo_run,
)

import flambeau as fb
from flambeau.checkpoint import RunDirectory
from flambeau.config import Binding
from flambeau.driver.parts.predict import predict_run
from flambeau.errors import CheckpointError, ConfigError, DataError, ModelError
from flambeau.inference.export import ExportOptions
from flambeau.runs.run_export import export_run
from flambeau.runs.trained_run import read_settings


def export(run: RunDirectory, out: Path, since: Any = None, **options: Any) -> Any:
    given = ExportOptions(**{"inside_mb": 0, **options})
    return export_run(run, read_settings(run), "latest", out, given, since and str(since))


def truth(run: RunDirectory) -> pa.Table:
    data = str(run.path.parent / "clicks.parquet")
    return predict_run(run, read_settings(run), "latest", data, None)


def same(found: pa.Table, expected: pa.Table, within: float = 1e-6) -> None:
    scores = [name for name in expected.column_names if "pr" in name]
    assert scores
    for name in scores:
        ours, theirs = (np.array(table[name].to_pylist(), float) for table in (found, expected))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=within)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("DeepFm", {}),
        ("DeepFm", {"inside_mb": 64}),
        ("DeepFm", {"format": "torch"}),
        ("DeepFm", {"format": "torchscript", "inside_mb": 64}),
        ("History", {}),
        ("Mlp", {}),
        ("Mlp", {"format": "torch"}),
    ],
    ids=str,
)
def test_an_export_gives_the_scores_of_its_run(
    tmp_path: Path, model: str, options: dict[str, Any]
) -> None:
    run = write_run(tmp_path, model)
    made = export(run, tmp_path / "out", **options)
    inside = options.get("inside_mb") and model == "DeepFm"
    assert made.graph.lookups == ("none" if model == "Mlp" else "inside" if inside else "outside")
    is_program = options.get("format") in ("torch", "torchscript")
    predictor = fb.Predictor.load(tmp_path / "out", trust=is_program)
    same(predictor.predict(clicks()), truth(run))
    same(predictor.predict(clicks().slice(3, 1)), truth(run).slice(3, 1))


def test_onnx_searches_its_tables_itself(tmp_path: Path) -> None:
    run = write_run(tmp_path, "DeepFm")
    assert export(run, tmp_path / "out", format="onnx", inside_mb=64).graph.lookups == "inside"
    same(fb.Predictor.load(tmp_path / "out").predict(clicks()), truth(run))


def test_a_run_answers_as_its_export(tmp_path: Path) -> None:
    run = write_run(tmp_path, "DeepFm")
    predictor = fb.Predictor.load(run.path)
    same(predictor.predict(clicks().to_pylist()), truth(run))
    assert predictor.predict(clicks())["key"].to_pylist() == clicks()["key"].to_pylist()


def test_unused_ids_are_no_inputs_of_the_graph(tmp_path: Path) -> None:
    made = export(write_run(tmp_path, "DeepFm"), tmp_path / "out")
    assert [each.name for each in made.graph.inputs] == ["ids_0", "dense"]
    assert made.graph.inputs[0].shape == (None, 3, 4)


def test_the_folder_is_read_with_torch_and_safetensors_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path, "History")
    export(run, tmp_path / "out")
    binding = json.loads((tmp_path / "out/binding.json").read_text())
    table = load_file(tmp_path / "out" / binding["tables"]["item"]["file"])
    rows = dict(zip(table["ids"].tolist(), table["values"], strict=True))
    row = next(row for row in clicks().to_pylist() if len(row["history"]) > 1)

    def vector(id: int) -> torch.Tensor:
        return rows.get(id, torch.tensor(binding["tables"]["item"]["default"]))

    history = torch.stack([vector(id) for id in row["history"]])
    lookups = {"item": vector(row["item"])[None], "mean": history.mean(0)[None]}
    graph = torch.export.load(tmp_path / "out/model.pt2").module()
    there = torch.ones(1, len(history), dtype=torch.bool)
    given = {"padded": (history[None], there), "pooled": (lookups["mean"],)}
    # As forward() looks up: the padded history, the item, the mean.
    click, _ = graph(*given["padded"], lookups["item"], *given["pooled"])
    assert [entry["pooling"] for entry in binding["lookups"]] == ["none", "none", "mean"]
    expected = fb.Predictor.load(tmp_path / "out").predict([row])["click_probability"]
    assert torch.sigmoid(click).item() == pytest.approx(expected[0].as_py(), abs=1e-6)


@pytest.mark.parametrize(("tables", "within"), [("bf16", 0.05), ("int8", 0.05)])
def test_smaller_tables_give_nearly_the_same(tmp_path: Path, tables: str, within: float) -> None:
    run = write_run(tmp_path, "DeepFm")
    export(run, tmp_path / "out", tables=tables, inside_mb=0 if tables == "int8" else 64)
    found, expected = fb.Predictor.load(tmp_path / "out").predict(clicks()), truth(run)
    gap = np.abs(found["probability"].to_numpy() - expected["probability"].to_numpy()).max()
    assert 0 < gap < within


def changed_run(tmp_path: Path) -> RunDirectory:
    """A second checkpoint: a row changed, one left, one is new."""
    run = RunDirectory(tmp_path / "run")
    ids, values = some_rows(4)
    values[0] += 1
    kept = np.arange(len(ids)) != 3
    rows = np.append(ids[kept], 999), np.vstack([values[kept], np.ones((1, 4), np.float32)])
    add_checkpoint(run, History(), {"item": rows}, 2)
    return run


def test_a_delta_has_what_changed_and_is_applied_on_what_it_adds_to(tmp_path: Path) -> None:
    run = write_run(tmp_path, "History")
    export(run, tmp_path / "day1")
    made = export(changed_run(tmp_path), tmp_path / "day2", since=tmp_path / "day1")
    table = made.tables["item"]
    assert (table.rows, table.removed, made.graph_here) == (2, 1, False)
    assert not (tmp_path / "day2/model.pt2").exists()
    same(fb.Predictor.load(tmp_path / "day2").predict(clicks()), truth(run))
    again = export(run, tmp_path / "day3", since=tmp_path / "day2").tables["item"]
    assert (again.rows, again.removed) == (0, 0)
    same(fb.Predictor.load(tmp_path / "day3").predict(clicks()), truth(run))


def test_a_delta_to_a_run_needs_that_run(tmp_path: Path) -> None:
    run = changed_run_of(tmp_path)
    made = export(run, tmp_path / "day2", since=f"{run.path}@step-1")
    assert (made.tables["item"].rows, made.graph_here) == (2, True)
    same(fb.Predictor.load(tmp_path / "day2").predict(clicks()), truth(run))


def changed_run_of(tmp_path: Path) -> RunDirectory:
    write_run(tmp_path, "History")
    return changed_run(tmp_path)


def test_a_delta_with_quantised_rows_holds_only_what_changed(tmp_path: Path) -> None:
    run = write_run(tmp_path, "History")
    export(run, tmp_path / "day1", tables="int8")
    changed_run(tmp_path)
    made = export(run, tmp_path / "day2", since=tmp_path / "day1", tables="int8")
    assert (made.tables["item"].rows, made.tables["item"].removed) == (2, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tables": "int8"}, "stored in another format"),
        ({"format": "torch"}, "another format"),
    ],
)
def test_a_delta_of_another_kind_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    run = write_run(tmp_path, "History")
    export(run, tmp_path / "day1")
    with pytest.raises(ConfigError, match=message):
        export(run, tmp_path / "day2", since=tmp_path / "day1", **options)
    assert not (tmp_path / "day2").exists()


def test_a_delta_to_an_export_of_another_model_is_refused(tmp_path: Path) -> None:
    export(write_run(tmp_path / "a", "DeepFm"), tmp_path / "day1")
    with pytest.raises(ConfigError, match=f"since={tmp_path / 'day1'}: it has other tables"):
        export(write_run(tmp_path / "b", "History"), tmp_path / "day2", since=tmp_path / "day1")


def test_a_delta_of_a_model_with_other_weights_is_refused(tmp_path: Path) -> None:
    binding = Binding(**BINDINGS["DeepFm"])
    runs = [
        write_zoo_run(tmp_path / name, name, {"fields": 3, "dense": 2}, binding=binding, loss="bce")
        for name in ("dlrm", "dcnv2")
    ]
    export(runs[0], tmp_path / "day1")
    with pytest.raises(ConfigError, match="its model has other weights, so there is no delta"):
        export(runs[1], tmp_path / "day2", since=tmp_path / "day1")
    assert not (tmp_path / "day2").exists()


def test_a_delta_whose_base_was_replaced_or_is_gone_is_not_loaded(tmp_path: Path) -> None:
    run = write_run(tmp_path, "History")
    export(run, tmp_path / "day1")
    export(run, tmp_path / "day2", since=tmp_path / "day1")
    (tmp_path / "day1").rename(tmp_path / "away")
    with pytest.raises(DataError, match=f"a delta to {tmp_path / 'day1'}, which does not exist"):
        fb.Predictor.load(tmp_path / "day2")
    export(run, tmp_path / "day1")
    with pytest.raises(DataError, match="another export"):
        fb.Predictor.load(tmp_path / "day2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "onxx"}, r"format='onxx' is not known; did you mean 'onnx'\?"),
        ({"tables": "int4"}, "tables='int4' is not known"),
    ],
)
def test_unknown_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ExportOptions(**options)


def test_a_folder_that_exists_is_not_written_over(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Mlp")
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        export(run, tmp_path / "out")


def test_a_run_without_a_checkpoint_cannot_be_exported(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Mlp")
    with pytest.raises(CheckpointError, match="has no checkpoint of step 9"):
        export_run(run, read_settings(run), "step-9", tmp_path / "out")


def test_what_is_neither_an_export_nor_a_run_is_no_base(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither an export nor a run"):
        export(write_run(tmp_path, "Mlp"), tmp_path / "out", since=tmp_path)


def test_computed_ids_are_looked_up_inside_or_not_at_all(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Shifted")
    with pytest.raises(ModelError, match=r"lookup 1 \(table 'ids'\) has ids that forward\(\)"):
        export(run, tmp_path / "out")
    export(run, tmp_path / "out", inside_mb=1)
    same(fb.Predictor.load(tmp_path / "out").predict(clicks()), truth(run))


def test_data_that_is_gone_can_be_replaced(tmp_path: Path) -> None:
    run = write_run(tmp_path, "DeepFm")
    (tmp_path / "clicks.parquet").rename(tmp_path / "other.parquet")
    with pytest.raises(DataError, match="Give others like them with data="):
        export(run, tmp_path / "out")
    data = str(tmp_path / "other.parquet")
    settings = read_settings(run)
    export_run(run, settings, "latest", tmp_path / "out", ExportOptions(), None, data)
    assert isinstance(DeepFm(), torch.nn.Module)
    assert (tmp_path / "out/model.pt2").is_file()
