"""Commands on real ssh servers, of which some cannot be used."""

from sshd import SshHosts

from flambeau.clusters.ssh.connection import SshProgram, ask_all
from flambeau.clusters.ssh.problems import ProblemKind


def test_all_hosts_answer_or_have_a_problem_within_the_time(ssh_hosts: SshHosts) -> None:
    ssh_hosts.start("node4", accepts_key=False)
    ssh_hosts.start("node5", accepts_key=False, passwords=True)
    ssh_hosts.start("node6", lines=["ForceCommand sleep 600"])
    names = [*ssh_hosts.names, "node7", "no-such-host"]
    answers = ask_all(SshProgram(ssh_hosts.ssh), names, ["echo", "a  b", "$HOME"], seconds=5)
    for name in ("node1", "node2", "node3"):
        assert (answers[name].output, answers[name].problem) == (b"a  b $HOME\n", None)
    found = {name: answer.problem.kind for name, answer in answers.items() if answer.problem}
    assert found == {
        "node4": ProblemKind.DENIED,
        "node5": ProblemKind.DENIED,
        "node6": ProblemKind.HANGS,
        "node7": ProblemKind.REFUSED,
        "no-such-host": ProblemKind.NAME,
    }
    assert max(answer.seconds for answer in answers.values()) < 60


def test_a_host_key_that_is_unknown_or_has_changed_is_a_problem(ssh_hosts: SshHosts) -> None:
    ssh, known = SshProgram(ssh_hosts.ssh), ssh_hosts.folder / "known_hosts"
    right, other = known.read_text(), (ssh_hosts.folder / "user_key.pub").read_text().split()[1]
    try:
        known.write_text("")
        unknown = ask_all(ssh, ["node1"], "true", seconds=30)["node1"].problem
        known.write_text(right.replace(right.split()[2], other))
        changed = ask_all(ssh, ["node1"], "true", seconds=30)["node1"].problem
    finally:
        known.write_text(right)
    assert unknown is not None
    assert unknown.kind is ProblemKind.HOST_KEY_UNKNOWN
    assert changed is not None
    assert changed.kind is ProblemKind.HOST_KEY_CHANGED
    address = ssh_hosts.address("node1")
    assert changed.command == f"ssh-keygen -f {known} -R '[{address}]:{ssh_hosts.port}'"


def test_a_command_that_a_host_lacks_is_a_problem(ssh_hosts: SshHosts) -> None:
    answer = ask_all(SshProgram(ssh_hosts.ssh), ["node2"], ["nosuchcommand"], seconds=30)["node2"]
    assert answer.problem is not None
    assert answer.problem.kind is ProblemKind.COMMAND
