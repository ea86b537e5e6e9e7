"""Host files of MPI, DeepSpeed and of lists of addresses."""

from pathlib import Path

import pytest

from flambeau.config.host_file import Host, read_hosts
from flambeau.errors import ConfigError


@pytest.mark.parametrize(
    ("line", "name", "slots"),
    [
        ("node1", "node1", None),
        ("  node1\t", "node1", None),
        ("node1 slots=4", "node1", 4),
        ("node1 slots=4 max_slots=8", "node1", 4),
        ("node1 max-slots=8", "node1", None),
        ("node1:4", "node1", 4),
        ("node1:4 # with a comment", "node1", 4),
        ("ubuntu@10.0.0.4", "ubuntu@10.0.0.4", None),
        ("ubuntu@10.0.0.4:2", "ubuntu@10.0.0.4", 2),
        ("172.31.16.226 (${PS_IP})", "172.31.16.226", None),
        ("172.31.16.226 (the master) slots=2", "172.31.16.226", 2),
        ("fe80::1%eth0", "fe80::1%eth0", None),
        ("::1", "::1", None),
        ("me@fd00::5", "me@fd00::5", None),
        ("[fd00::5]", "fd00::5", None),
        ("[fd00::5]:4", "fd00::5", 4),
        ("me@[fd00::5]:4", "me@fd00::5", 4),
        ("gpu_box-1.example.org slots=1", "gpu_box-1.example.org", 1),
    ],
)
def test_a_line_names_a_host_and_perhaps_its_slots(line: str, name: str, slots: int) -> None:
    assert read_hosts([line]) == (Host(name, slots, line=1),)


def test_comments_notes_and_empty_lines_are_ignored_and_the_order_stays(tmp_path: Path) -> None:
    path = tmp_path / "hosts_address"
    path.write_text("# the cluster\n\n10.0.0.9 (${PS_IP})\n10.0.0.1\n  (spare)\n10.0.0.5:2\n")
    assert read_hosts(path) == (
        Host("10.0.0.9", None, 3),
        Host("10.0.0.1", None, 4),
        Host("10.0.0.5", 2, 6),
    )
    assert read_hosts(str(path)) == read_hosts(path)


def test_a_file_of_windows_is_read(tmp_path: Path) -> None:
    path = tmp_path / "hosts.txt"
    path.write_bytes(b"\xef\xbb\xbfnode1 slots=2\r\nnode2\r\n")
    assert [(host.name, host.slots) for host in read_hosts(path)] == [("node1", 2), ("node2", None)]


def test_lines_with_the_same_host_add_up() -> None:
    assert read_hosts(["a", "b slots=3", "a", "b:2", "b"]) == (Host("a", 2, 1), Host("b", 6, 2))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("node1 slots=0", "'0' is not a number of slots"),
        ("node1 slots=many", "'many' is not a number of slots"),
        ("node1 slots=", "'' is not a number of slots"),
        ("node1:", "'' is not a number of slots"),
        ("node1:4 slots=4", "given twice"),
        ("node1 node2", "'node2' is not understood"),
        ("node1 gpus=2", "'gpus=2' is not understood"),
        ("-oProxyCommand=evil", "is not the name or address of a host"),
        ("node1;reboot", "is not the name or address of a host"),
        ("@node1", "is not the name or address of a host"),
        ("node[1-3]", "is not the name or address of a host"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "hosts.txt"
    path.write_text(f"# first\n{line}\n")
    with pytest.raises(ConfigError, match=r"hosts\.txt, line 2") as caught:
        read_hosts(path)
    assert reason in str(caught.value)


def test_a_list_is_named_as_such() -> None:
    with pytest.raises(ConfigError, match="hosts, line 2: 'b slots=x'"):
        read_hosts(["a", "b slots=x"])


def test_no_hosts_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "hosts.txt"
    path.write_text("# none yet\n")
    with pytest.raises(ConfigError, match=r"hosts\.txt: no hosts are in it"):
        read_hosts(path)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the host file .*gone\.txt: No such file"):
        read_hosts(tmp_path / "gone.txt")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_hosts(tmp_path)
