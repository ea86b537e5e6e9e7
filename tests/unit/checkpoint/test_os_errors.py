import errno
from pathlib import Path

import pytest

from flambeau.checkpoint.os_errors import file_reason, machine_reason, named, require_writable


def test_an_error_without_a_file_gets_its_name() -> None:
    with (
        pytest.raises(OSError, match="No space left") as caught,
        named(Path("a/b")),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"1")
    assert caught.value.filename == "a/b"


def test_an_error_that_names_its_file_keeps_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, named(Path("a/b")):
        (tmp_path / "none").read_bytes()
    assert caught.value.filename == str(tmp_path / "none")


def test_only_errors_of_files_and_machines_have_reasons() -> None:
    assert machine_reason(errno.EACCES) is None
    assert file_reason(errno.EACCES, "choose another run_dir") is not None
    assert (
        file_reason(errno.ENOSPC) == "no space is left on the disk; free some, or use another place"
    )
    assert file_reason(errno.ECONNRESET) is None
    assert file_reason(None) is None


def test_a_place_is_tried_before_it_is_written_to(tmp_path: Path) -> None:
    require_writable(tmp_path / "new" / "folder" / "file")
    assert not any(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as caught:
        require_writable(tmp_path / "file" / "in" / "it")
    assert caught.value.filename == str(tmp_path / "file" / "in" / "it")
