"""What ssh's messages mean, and what helps. The texts are those of OpenSSH."""

import pytest

from flambeau.clusters.ssh.problems import Problem, ProblemKind, explain, last_line, listed

SSH = "ssh -F my_config"
CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Add correct host key in /home/me/.ssh/known_hosts to get rid of this message.
Offending ED25519 key in /home/me/.ssh/known_hosts:7
Host key for [10.0.0.4]:2222 has changed and you have requested strict checking.
Host key verification failed.
"""
UNKNOWN = """\
No ED25519 host key is known for node1 and you have requested strict checking.
Host key verification failed.
"""


@pytest.mark.parametrize(
    ("errors", "kind", "command"),
    [
        (
            CHANGED,
            "HOST_KEY_CHANGED",
            "ssh-keygen -f /home/me/.ssh/known_hosts -R '[10.0.0.4]:2222'",
        ),
        (UNKNOWN, "HOST_KEY_UNKNOWN", f"{SSH} node1 true"),
        ("root@node1: Permission denied (publickey).", "DENIED", f"{SSH} -v node1 true"),
        (
            "node1: Permission denied (publickey,password).",
            "DENIED",
            "ssh-copy-id -F my_config node1",
        ),
        (
            "Received disconnect from 10.0.0.4 port 22:2: Too many authentication failures",
            "DENIED",
            f"{SSH} -o IdentitiesOnly=yes -i KEY node1 true",
        ),
        (
            "ssh: Could not resolve hostname node1: Name or service not known",
            "NAME",
            f"{SSH} -G node1",
        ),
        (
            "ssh: connect to host node1 port 22: Connection refused",
            "REFUSED",
            f"{SSH} -v node1 true",
        ),
        (
            "ssh: connect to host node1 port 22: Connection timed out",
            "UNREACHABLE",
            f"{SSH} -v node1 true",
        ),
        ("Connection timed out during banner exchange", "UNREACHABLE", f"{SSH} -v node1 true"),
        (
            "ssh: connect to host 10.0.0.4 port 22: No route to host",
            "UNREACHABLE",
            f"{SSH} -v node1 true",
        ),
        ("Timeout, server node1 not responding.", "UNREACHABLE", f"{SSH} -v node1 true"),
        (
            "kex_exchange_identification: read: Connection reset by peer",
            "CLOSED",
            f"{SSH} -v node1 true",
        ),
        ("my_config: terminating, 1 bad configuration options", "CONFIG", f"{SSH} -G node1"),
        ("something new", "OTHER", f"{SSH} -v node1 true"),
    ],
)
def test_a_message_of_ssh_names_the_command_that_helps(
    errors: str, kind: str, command: str
) -> None:
    problem = explain("node1", SSH, 255, errors)
    assert problem is not None
    assert (problem.kind, problem.command) == (ProblemKind[kind], command)


def test_what_ssh_says_is_not_taken_for_what_a_command_says() -> None:
    assert explain("node1", "ssh", 1, "Permission denied (publickey).") is None
    assert explain("node1", "ssh", 0, "Connection refused") is None


@pytest.mark.parametrize("code", [126, 127])
def test_a_command_that_is_not_there_is_a_problem(code: int) -> None:
    problem = explain("node1", "ssh", code, "bash: line 1: python: command not found\n")
    assert problem is not None
    assert problem.kind is ProblemKind.COMMAND
    assert "python: command not found" in problem.text


def test_a_problem_of_an_unknown_kind_shows_what_ssh_has_written() -> None:
    problem = explain(
        "node1", "ssh", 255, "Warning: Permanently added 'x'.\nodd thing\n** WARNING: y"
    )
    assert problem is not None
    assert problem.text == "ssh could not run a command there: odd thing"


def test_the_last_line_that_is_no_warning_counts() -> None:
    assert last_line("a\nb.\nWarning: c\n\n") == "b"
    assert last_line("Warning: only this") == "Warning: only this"
    assert last_line("") == ""


def test_hosts_are_listed_with_what_helps() -> None:
    problems = [
        Problem("a", ProblemKind.NAME, "its name is not known", "ssh -G a", "see the name"),
        Problem("b", ProblemKind.OTHER, "odd", "ssh -v b"),
    ]
    assert listed(problems, 3) == (
        "2 of 3 hosts cannot be used:\n"
        "  a: its name is not known. Run: ssh -G a (see the name)\n"
        "  b: odd. Run: ssh -v b"
    )
