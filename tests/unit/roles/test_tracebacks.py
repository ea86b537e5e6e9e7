import errno
from pathlib import Path
from typing import Any, cast

import pytest

from flambeau.config import JobSettings
from flambeau.errors import CheckpointError, DataError
from flambeau.roles.tracebacks import recognised, users_traceback, whole_traceback
from flambeau.training.callbacks import Callback, Callbacks, TrainingView


def raised(function: Any, *arguments: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:
        function(*arguments)
    return caught.value


def users_code() -> None:
    raise RuntimeError("boom in the user's code")


class Broken(Callback):
    def on_start(self, view: TrainingView) -> None:
        users_code()


def through_flambeau() -> None:
    Callbacks([Broken()]).on_start(cast(TrainingView, None))


def test_frames_of_flambeau_are_left_out_of_a_users_traceback() -> None:
    error = raised(through_flambeau)
    assert "training/callbacks.py" in whole_traceback(error)
    text = users_traceback(error)
    assert "training/callbacks.py" not in text
    assert "in users_code" in text
    assert text.endswith("RuntimeError: boom in the user's code")


def test_without_a_frame_of_the_user_all_are_shown() -> None:
    error = raised(JobSettings.parse, {"epochs": -1})
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error = error.with_traceback(trace)
    assert "config/settings.py" in users_traceback(error)


def chained() -> None:
    try:
        users_code()
    except RuntimeError as error:
        raise KeyError("second") from error


def test_causes_of_an_exception_are_shown_too() -> None:
    text = users_traceback(raised(chained))
    assert "boom in the user's code" in text
    assert "The above exception was the direct cause" in text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "a/b: no space is left"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the disk quota is used up"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (RuntimeError("I/O error: No space left on device (os error 28)"), "no space is left"),
        (MemoryError(), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out of memory"),
        (DataError("row 7 is odd"), "row 7 is odd"),
        (CheckpointError("it is corrupt"), "it is corrupt"),
    ],
)
def test_a_recognised_cause_is_explained(error: BaseException, text: str) -> None:
    assert text in str(recognised(error))


def full_disk(path: Path) -> None:
    try:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))
    except OSError as error:
        raise ValueError("could not write") from error


def test_a_cause_further_down_is_recognised_as_well(tmp_path: Path) -> None:
    assert "no space is left" in str(recognised(raised(full_disk, tmp_path)))


@pytest.mark.parametrize("error", [RuntimeError("boom"), OSError(errno.ENOENT, "gone"), KeyError()])
def test_other_errors_keep_their_traceback(error: BaseException) -> None:
    assert recognised(error) is None
