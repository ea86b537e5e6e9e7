from typing import Any

import pytest

from flambeau.observe import Event
from flambeau.observe.server_stats import Shards, client_numbers, staleness_mean

TABLE = {"rows": 10, "bytes": 640, "admitted": 12, "rejected": 3, "evicted": 2}


def server(time: float, shard: int = 0, shards: int = 1, **fields: Any) -> Event:
    known = {"shard": shard, "shards": shards, "version": 5, "staleness": {}, "tables": {}}
    return Event("server", time, {**known, **fields})


def test_rates_are_differences_between_two_events_of_a_shard() -> None:
    shards = Shards()
    first = shards.add(server(10.0, pulls=100, pushes=40))
    assert (first["pulls_per_second"], first["pushes_per_second"]) == (None, None)
    shards.add(server(11.0, shard=1, pulls=7))
    second = shards.add(server(14.0, pulls=120, pushes=40))
    assert (second["pulls_per_second"], second["pushes_per_second"]) == (5.0, 0.0)


def test_a_count_that_is_left_out_is_zero() -> None:
    shards = Shards()
    shards.add(server(0.0))
    assert shards.add(server(2.0, pulls=3))["pulls_per_second"] == 1.5


def test_a_shard_that_was_replaced_begins_anew() -> None:
    shards = Shards()
    shards.add(server(0.0, pulls=100, staleness={"9": 100}))
    numbers = shards.add(server(2.0, pulls=3, staleness={"1": 2}))
    assert numbers["pulls_per_second"] is None
    assert numbers["staleness_mean"] == 1.0


def test_staleness_is_of_late() -> None:
    shards = Shards()
    assert shards.add(server(0.0, staleness={"0": 2, "3": 2}))["staleness_mean"] == 1.5
    assert shards.add(server(2.0, staleness={"0": 2, "3": 2, "10": 1}))["staleness_mean"] == 10.0
    assert shards.add(server(4.0, staleness={"0": 2, "3": 2, "10": 1}))["staleness_mean"] is None


def test_the_staleness_of_all_shards_is_one_mean() -> None:
    shards = Shards()
    assert shards.staleness is None
    shards.add(server(0.0, shard=0, shards=2, staleness={"0": 3}))
    shards.add(server(0.0, shard=1, shards=2, staleness={"4": 1}))
    assert shards.staleness == 1.0
    assert shards.count == 2


def test_over_all_time_staleness_is_the_mean_of_all_gradients() -> None:
    assert staleness_mean({"staleness": {"0": 3, "4": 1}}) == 1.0
    assert staleness_mean({"staleness": {}}) is None


def test_tables_are_summed_over_shards_when_all_have_told_theirs() -> None:
    shards = Shards()
    shards.add(server(0.0, shard=1, shards=2, tables={"item": TABLE}))
    assert shards.tables() == {}
    shards.add(server(0.0, shard=0, shards=2, tables={"item": TABLE, "user": TABLE}))
    assert shards.tables() == {
        "item": {"rows": 20, "bytes": 1280, "admitted": 24, "rejected": 6, "evicted": 4},
        "user": TABLE,
    }


def test_only_the_latest_word_of_a_shard_counts() -> None:
    shards = Shards()
    for rows in (5, 7):
        shards.add(server(0.0, tables={"item": {**TABLE, "rows": rows}}))
    assert shards.tables()["item"]["rows"] == 7


def test_a_client_tells_how_long_it_waits_and_what_it_saves() -> None:
    fields = {
        "pulls": 4,
        "pull_seconds_p50": 0.001,
        "pull_seconds_p99": 0.02,
        "ids_seen": 300,
        "ids_distinct": 100,
        "prefetch_hits": 3,
        "prefetch_misses": 1,
        "requests_resent": 2,
    }
    assert client_numbers(fields) == {
        "pull_seconds_p50": 0.001,
        "pull_seconds_p99": 0.02,
        "dedup": 3.0,
        "prefetch_hit_rate": 0.75,
        "requests_resent": 2,
    }


@pytest.mark.parametrize("name", ["pull_seconds_p50", "pull_seconds_p99", "dedup"])
def test_a_client_that_has_looked_up_nothing_has_nothing_to_tell_of_it(name: str) -> None:
    fields = {"pull_seconds_p50": 0.0, "pull_seconds_p99": 0.0, "ids_seen": 0, "ids_distinct": 0}
    assert client_numbers(fields)[name] is None
