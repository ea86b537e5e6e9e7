"""Which agent is on which host."""

from flambeau.clusters.ssh.slots import Slots
from flambeau.config.host_file import Host

HOSTS = (Host("a", 2), Host("b", 1), Host("c", 2))


def test_hosts_are_filled_in_their_order() -> None:
    assert Slots(HOSTS, 4).used == {"a": [0, 1], "b": [2], "c": [3]}
    assert Slots(HOSTS, 2).used == {"a": [0, 1]}


def test_an_agent_that_is_placed_again_keeps_its_slot() -> None:
    slots = Slots(HOSTS, 5)
    assert slots.place(2) == "b"
    assert slots.used == {"a": [0, 1], "b": [2], "c": [3, 4]}


def test_agents_of_a_lost_host_get_free_slots_as_long_as_there_are_any() -> None:
    slots = Slots(HOSTS, 4)
    assert slots.lose("a") == [0, 1]
    assert (slots.host_of(0), slots.place(0), slots.host_of(0)) == (None, "c", "c")
    assert slots.place(1) is None
    assert slots.used == {"b": [2], "c": [0, 3]}


def test_a_host_is_lost_once_and_may_come_back() -> None:
    slots = Slots(HOSTS, 4)
    slots.lose("a")
    assert slots.lose("a") == []
    slots.add("a", 2)
    assert [slots.place(agent) for agent in (0, 1)] == ["c", "a"]
