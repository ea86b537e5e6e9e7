"""The command line that runs a command on a host."""

import pytest

from flambeau.clusters.ssh.connection import SshProgram, on_all
from flambeau.errors import ConfigError, MissingDependencyError

SHELL = "sh"  # a program that is there, whether ssh is installed or not


def test_words_arrive_as_they_are() -> None:
    command = SshProgram(SHELL).command("me@node1", ["python", "-c", "print('a  b')", "$HOME"])
    assert command[-3:] == ["--", "me@node1", """python -c 'print('"'"'a  b'"'"')' '$HOME'"""]


def test_a_text_is_for_the_shell_of_the_host() -> None:
    assert SshProgram(SHELL).command("node1", "echo $HOME", "-N")[-4:] == [
        "-N",
        "--",
        "node1",
        "echo $HOME",
    ]


def test_options_of_the_user_come_first_and_none_may_ask_a_question() -> None:
    program = SshProgram(f"{SHELL} -F 'my config'")
    assert program.transport[:3] == [SHELL, "-F", "my config"]
    assert "BatchMode=yes" in program.transport
    assert program.words == SshProgram([SHELL, "-F", "my config"]).words
    assert program.shown == f"{SHELL} -F 'my config'"


@pytest.mark.parametrize("given", ["", [], "ssh -F 'half"])
def test_no_program_is_an_error(given: str) -> None:
    with pytest.raises(ConfigError, match="ssh="):
        SshProgram(given)


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(MissingDependencyError, match="no program 'nossh' on this machine"):
        SshProgram("nossh -v")


def test_results_are_by_host_and_in_order() -> None:
    assert list(on_all(["b", "a", "b"], str.upper).items()) == [("b", "B"), ("a", "A")]
    assert on_all([], str.upper) == {}
