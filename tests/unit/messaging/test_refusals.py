from flambeau.messaging.refusals import MOST_PEERS, MOST_REASONS, Refusals


def test_each_peer_is_told_once_and_every_refusal_counted() -> None:
    said: list[str] = []
    refusals = Refusals(said.append)
    for peer in ("10.0.0.1", "10.0.0.2", "10.0.0.1"):
        refusals.add(peer, "no valid token")
        refusals.tell()
    assert said == ["refused 10.0.0.1: no valid token", "refused 10.0.0.2: no valid token"]
    assert refusals.counts == {"no valid token": 3}


def test_nothing_is_told_before_it_is_asked_for() -> None:
    said: list[str] = []
    Refusals(said.append).add("10.0.0.1", "no valid token")
    assert said == []


def test_what_is_remembered_does_not_grow_with_those_who_come() -> None:
    said: list[str] = []
    refusals = Refusals(said.append)
    for number in range(5000):
        refusals.add(f"peer {number}", f"reason {number}")
    refusals.tell()
    assert len(said) == MOST_PEERS
    assert len(refusals.counts) == MOST_REASONS + 1
    assert refusals.counts.total() == 5000


def test_nobody_has_to_listen() -> None:
    refusals = Refusals(None)
    refusals.add("10.0.0.1", "no valid token")
    refusals.tell()
    assert refusals.counts.total() == 1
