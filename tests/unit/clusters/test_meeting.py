"""How processes find rank 0, and what they find where something is wrong."""

import os
import socket
import threading
from pathlib import Path

import pytest
from torch._C._distributed_c10d import TCPStore

from flambeau.clusters.attached import meeting
from flambeau.clusters.attached.launchers import Identity
from flambeau.clusters.attached.meeting import Meeting, Participation
from flambeau.clusters.attached.meeting_messages import Arrived, Over
from flambeau.clusters.attached.meeting_place import MeetingPlace
from flambeau.config import Attached
from flambeau.errors import ConfigError, MessagingError, UntrustedError


def arrived(rank: int, size: int = 2, **more: object) -> Arrived:
    values = {"call": "fb.fit", "arguments": {}, "node": f"n{rank}", "machine": "m", "gpus": 0}
    return Arrived(rank, size, **{**values, **more})


def identity(rank: int, size: int = 2) -> Identity:
    return Identity("test", rank, size, "job-7", one_host=True)


@pytest.fixture
def settings(tmp_path: Path) -> Attached:
    return Attached(meeting_dir=str(tmp_path / "meetings"), start_timeout=20)


def meet(settings: Attached, own: Arrived, other: Arrived) -> Participation:
    """Let two processes meet; the second one's side, or the first one's error."""
    host = Meeting(settings, identity(0), 0)
    participation = Participation(settings, identity(1), 0)
    told = []

    def take_part() -> None:
        participation.arrive(other, 20)
        told.append(participation.next())
        participation.farewell()

    thread = threading.Thread(target=take_part)
    thread.start()
    try:
        host.gather(own, 20)
        host.end(b"value", failed=False)
    except ConfigError:
        host.end(b"error", failed=True)
        thread.join()
        participation.close()
        raise
    finally:
        thread.join()
        host.close()
    ((message, data),) = told
    assert (message, bytes(data)) == (Over(failed=False), b"value")
    return participation


def test_processes_meet_by_a_file_that_only_the_owner_reads(settings: Attached) -> None:
    host = Meeting(settings, identity(0), 0)
    (path,) = Path(settings.meeting_dir).iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    host.close()
    assert not path.parent.exists()
    participation = meet(settings, arrived(0), arrived(1))
    with pytest.raises(MessagingError, match="rank 0 is gone"):
        participation.next()
    participation.close()
    assert not path.parent.exists()


def test_a_file_of_an_earlier_job_leads_nowhere_and_is_survived(settings: Attached) -> None:
    stale = Meeting(settings, identity(0), 0)
    path = stale._place.path
    left = path.read_bytes()
    stale.close()
    path.parent.mkdir()
    path.write_bytes(left)
    participation = Participation(settings, identity(1), 0)
    thread = threading.Thread(target=participation.arrive, args=(arrived(1), 20))
    thread.start()
    host = Meeting(settings, identity(0), 0)
    host.gather(arrived(0), 20)
    thread.join()
    host.close()
    participation.close()


def test_a_file_of_another_user_is_not_believed(
    settings: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Meeting(settings, identity(0), 0)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(UntrustedError, match="belongs to another user"):
        Participation(settings, identity(1), 0).arrive(arrived(1), 5)
    host.close()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"arguments": {"epochs": "3"}}, "epochs= of fb.fit differs: 3 in rank 1 on n1, 2 in"),
        ({"call": "fb.run"}, "rank 1 on n1 calls fb.run where rank 0 calls fb.fit"),
        ({"version": "0.0"}, "Flambeau 0.0 is installed on n1"),
        ({"size": 3}, "rank 1 says that there are 3 processes"),
    ],
)
def test_processes_that_do_not_agree(
    settings: Attached, other: dict[str, object], message: str
) -> None:
    given = {"arguments": {"epochs": "2"}, **other}
    with pytest.raises(ConfigError, match=message):
        meet(settings, arrived(0, arguments={"epochs": "2"}), arrived(1, **given))


def test_who_does_not_come_is_named(settings: Attached) -> None:
    host = Meeting(settings, identity(0, 3), 0)
    with pytest.raises(ConfigError, match=r"2 ranks of 3 \(1, 2\) did not come within 0.3 s"):
        host.gather(arrived(0, 3), 0.3)
    host.close()
    with pytest.raises(ConfigError, match="FLAMBEAU_MEETING_DIR"):
        Participation(settings, identity(1), 0).arrive(arrived(1), 0.3)


def test_without_a_folder_there_are_a_secret_and_an_address(
    settings: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAMBEAU_SECRET", "0123456789abcdef")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    free = Meeting(settings, identity(0), 0)  # needs a file: no port is given
    port = free._server.address.rsplit(":", 1)[1]
    assert b'secret":null' in free._place.path.read_bytes()
    free.close()
    monkeypatch.setenv("MASTER_PORT", port)
    meet(settings, arrived(0), arrived(1)).close()
    assert not Path(settings.meeting_dir).exists()
    places = [MeetingPlace(settings, identity(1), call) for call in (0, 1)]
    assert len({place.find() for place in places}) == 2  # a secret for each call
    monkeypatch.setenv("FLAMBEAU_SECRET", "short")
    with pytest.raises(ConfigError, match="too short"):
        MeetingPlace(settings, identity(0), 0)


def test_under_torchrun_a_secret_is_enough(
    settings: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    store = TCPStore("127.0.0.1", port, is_master=True, master_listen_fd=listener.detach())
    monkeypatch.setenv("FLAMBEAU_SECRET", "0123456789abcdef")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    meet(settings, arrived(0), arrived(1)).close()
    assert not Path(settings.meeting_dir).exists()


def test_long_settings_are_compared_by_a_digest() -> None:
    long = {"columns": [f"column {number}" for number in range(1000)]}
    assert len(meeting.shown(long)) < 100
    assert meeting.shown(long) != meeting.shown({**long, "columns": long["columns"][:-1]})


def test_a_long_wait_names_who_is_missing(
    settings: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flambeau.clusters.attached.meeting.QUIET_SECONDS", 0.0)
    host, said = Meeting(settings, identity(0), 0), list[str]()
    with pytest.raises(ConfigError):
        host.gather(arrived(0), 0.9, said.append)
    host.close()
    assert [text.partition("waiting")[2] for text in said] == [" for 1 rank of 2 (1), up to 0.9 s"]
