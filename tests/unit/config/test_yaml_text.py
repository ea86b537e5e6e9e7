from pathlib import Path
from typing import Any

import pytest

from flambeau.config.yaml_text import parse_yaml, read_yaml
from flambeau.errors import ConfigError


def complaint(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_yaml(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"), [("1e-3", 1e-3), ("-5E2", -500.0), ("1.5e3", 1500.0), ("1e", "1e"), ("7", 7)]
)
def test_numbers_with_an_exponent_are_numbers(text: str, value: Any) -> None:
    assert parse_yaml(text, "here") == value


def test_a_mistake_is_one_line_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: lenet\ntrain: [a, b\nepochs: 3\n")
    message = complaint(path)
    assert message.startswith(f"{path}, line 3, column 7: ")
    assert len(message.splitlines()) == 1


def test_a_key_that_is_there_twice_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("epochs: 1\nmodel: lenet\nepochs: 2\n")
    assert complaint(path) == f"{path}, line 3, column 1: key 'epochs' is there twice"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert complaint(tmp_path / "no.yaml") == f"there is no file {tmp_path / 'no.yaml'}"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert complaint(tmp_path).startswith(f"{tmp_path} cannot be read")


@pytest.mark.parametrize("text", ["", "# only a comment\n"])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    assert complaint(path).startswith(f"{path} is empty")


def test_a_file_without_keys_is_no_job(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("- a\n- b\n")
    assert complaint(path) == f"{path} holds a list; write 'key: value' lines"


def test_bytes_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in complaint(path)


def test_keys_are_texts_also_where_yaml_has_a_word_for_true() -> None:
    assert parse_yaml("on: user\nyes: on", "x") == {"on": "user", "yes": True}
