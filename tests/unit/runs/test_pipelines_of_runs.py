"""The pipeline of features that a run holds."""

from pathlib import Path

import flambeau.features as ft
from flambeau.checkpoint import RunDirectory
from flambeau.runs.open_data import FEATURES
from flambeau.runs.open_features import load_pipeline


def test_a_pipeline_that_was_replaced_is_loaded_again(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    for operation in (ft.Log("a"), ft.Clip("a", low=0)):
        pipeline = ft.Pipeline([operation]).fit({"a": [1.0, 2.0]})
        pipeline.save(run.code / FEATURES)
        assert load_pipeline(run).digest == pipeline.digest
        assert load_pipeline(run) is load_pipeline(run)
