from typing import Any

from flambeau.observe import Event
from flambeau.reports.stacks import announced, grouped, stacks_by_process

WAITING = '  File "group.py", line 5 in wait\n  File "loop.py", line 9 in run'


def log(rank: int, text: str, role: str = "worker") -> Event:
    fields: dict[str, Any] = {"rank": rank, "role": role, "stream": "stderr", "text": text}
    return Event("log", 0.0, fields)


def dump(main: str, other: str = '  File "threading.py", line 1 in run') -> str:
    head = "(most recent call first):"
    before = f"Thread 0x00007f01 [flambeau-life] {head}\n{other}\n"
    return f"{before}Current thread 0x00007f02 {head}\n{main}\n"


def test_equal_stacks_are_shown_once_with_all_who_have_them() -> None:
    events = [
        log(10, dump(WAITING)),
        log(2, "loss is low\n" + dump(WAITING)),
        log(0, dump('  File "data.py", line 1 in read'), role="server"),
    ]
    first, second = grouped(stacks_by_process(events))
    assert first == (
        ["worker 2", "worker 10"],
        tuple(line.strip() for line in WAITING.splitlines()),
    )
    assert second == (["server 0"], ('File "data.py", line 1 in read',))


def test_a_dump_may_come_in_pieces() -> None:
    lines = dump(WAITING).splitlines()
    events = [log(0, line) for line in lines]
    assert stacks_by_process(events) == stacks_by_process([log(0, dump(WAITING))])


def test_other_threads_are_shown_if_asked() -> None:
    found = stacks_by_process([log(0, dump(WAITING, WAITING))])
    assert grouped(found, all_threads=True)[0][0] == ["worker 0 (2 threads)"]


def test_who_is_expected_is_what_the_driver_has_announced() -> None:
    text = "the Python stacks of worker 3 follow: flambeau stacks was called"
    assert announced([Event("warning", 0.0, {"text": text})]) == ["worker 3"]


def test_what_is_no_stack_is_left_out() -> None:
    assert stacks_by_process([log(0, '  File "x", line 1 in y')]) == {}
