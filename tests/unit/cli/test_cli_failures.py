import warnings

import pytest
import typer

from flambeau.cli.failures import as_exit_codes
from flambeau.errors import (
    CheckpointError,
    ConfigError,
    RequestTimeoutError,
    WorkerFailedError,
    WorkerLostError,
)


def exit_code(error: BaseException) -> int:
    with pytest.raises(typer.Exit) as caught, as_exit_codes():
        raise error
    return caught.value.exit_code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("wrong"), 2),
        (CheckpointError("gone"), 2),
        (RequestTimeoutError("silent"), 2),
        (WorkerFailedError("worker 0 failed", "Traceback"), 1),
        (WorkerLostError("killed"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_kind_of_end_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


def test_a_users_mistake_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code(ConfigError("epochs=0: too few"))
    assert capsys.readouterr() == ("", "error: epochs=0: too few\n")


def test_further_lines_are_indented(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code(ConfigError("one\ntwo"))
    assert capsys.readouterr().err == "error: one\n  two\n"


def test_a_workers_traceback_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code(WorkerFailedError("worker 1 failed", "Traceback of it"))
    assert capsys.readouterr().err == "Traceback of it\nerror: worker 1 failed\n"


def test_our_own_errors_keep_their_trace() -> None:
    with pytest.raises(ZeroDivisionError), as_exit_codes():
        raise ZeroDivisionError


def test_a_warning_is_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with as_exit_codes():
            warnings.warn("some scores are NaN", stacklevel=1)
    assert capsys.readouterr().err == "warning: some scores are NaN\n"
