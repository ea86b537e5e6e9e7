"""The label map of a job is decided once, and part of the run."""

from pathlib import Path

import pytest
from torch import nn

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.manifest import MANIFEST
from flambeau.checkpoint.user_code import Packer
from flambeau.config import Binding, CodeRef, FileData, JobSettings
from flambeau.driver.label_mapping import with_label_map

SIGNS = {-1.0: 0.0, 1.0: 1.0}


def settings(path: Path, loss="bce", label="label", **given) -> JobSettings:
    return JobSettings(
        model=CodeRef(path="m:thing"),
        train=FileData(path=str(path)),
        binding=Binding(label=label, **given),
        loss=loss,
    )


@pytest.fixture
def signs(tmp_path: Path) -> Path:
    path = tmp_path / "train.libsvm"
    path.write_text("1 2:1\n-1 3:1\n")
    return path


def decided(tmp_path: Path, job: JobSettings, packer: Packer | None = None):
    found, text = with_label_map(RunDirectory(tmp_path / "run"), job, packer or Packer())
    return found.binding.label_map, text


@pytest.mark.parametrize("loss", ["bce", "bce_prob"])
def test_labels_of_a_binary_loss_are_recognised_and_reported(loss, signs, tmp_path):
    found, text = decided(tmp_path, settings(signs, loss))
    assert found == SIGNS
    assert text == "the labels are -1 and 1; they are learned as 0 and 1 (label_map={-1: 0, 1: 1})"


@pytest.mark.parametrize("loss", ["mse", "cross_entropy", None])
def test_labels_of_other_losses_stay(loss, signs, tmp_path):
    assert decided(tmp_path, settings(signs, loss)) == ({}, None)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (nn.BCEWithLogitsLoss(), SIGNS),
        (nn.BCELoss(), SIGNS),
        (nn.MSELoss(), {}),
        (lambda output, batch: output, {}),
    ],
)
def test_losses_of_torch_are_known_by_their_class(loss, expected, signs, tmp_path):
    packer = Packer()
    job = settings(signs, packer.add(loss, "loss"))
    assert decided(tmp_path, job, packer)[0] == expected


def test_a_loss_of_torch_may_be_named_in_a_job_file(signs, tmp_path):
    job = settings(signs, CodeRef(path="torch.nn:BCEWithLogitsLoss", call=True))
    assert decided(tmp_path, job)[0] == SIGNS


def test_several_tasks_are_mapped_if_all_are_binary(tmp_path):
    path = tmp_path / "train.libsvm"
    path.write_text("-1#1 2:1\n")
    tasks = {"a": "click", "b": "bought"}
    data = FileData(path=str(path), options={"labels": ["click", "bought"]})
    for other, expected in (("bce", SIGNS), ("mse", {})):
        job = settings(path, {"a": "bce", "b": other}, tasks).model_copy(update={"train": data})
        assert decided(tmp_path, job)[0] == expected


def test_what_is_given_counts(signs, tmp_path):
    given = {1.0: 0.0, -1.0: 1.0}
    assert decided(tmp_path, settings(signs, label_map=given)) == (given, None)


def test_files_that_only_workers_see_are_theirs_to_complain_of(tmp_path):
    assert decided(tmp_path, settings(tmp_path / "none.libsvm")) == ({}, None)


def trained(tmp_path: Path, job: JobSettings) -> RunDirectory:
    """A run that has a checkpoint."""
    run = RunDirectory(tmp_path / "run")
    run.prepare(job.model_dump(mode="json"), "auto")
    (run.checkpoints / "step-00000005").mkdir()
    (run.checkpoints / "step-00000005" / MANIFEST).write_text("{}")
    return run


def test_a_resumed_run_keeps_its_map_whatever_its_files_hold_now(signs, tmp_path):
    job = settings(signs)
    recorded, _ = with_label_map(RunDirectory(tmp_path / "run"), job, Packer())
    run = trained(tmp_path, recorded)
    signs.write_text("0 2:1\n1 3:1\n")
    resumed, text = with_label_map(run, job, Packer())
    assert (resumed, text) == (recorded, None)
    assert run.prepare(resumed.model_dump(mode="json"), "auto")


def test_a_run_that_was_trained_without_a_map_goes_on_without(signs, tmp_path):
    run = trained(tmp_path, settings(signs))
    assert with_label_map(run, settings(signs), Packer()) == (settings(signs), None)
