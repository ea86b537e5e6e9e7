from pathlib import Path
from typing import Any

import numpy as np

from flambeau.observe import Event, LatestMetrics, MetricsFile, metrics_text


def lines_after(*events: Event) -> list[str]:
    latest = LatestMetrics()
    for event in events:
        latest.observe(event)
    return metrics_text(latest).splitlines()


def progress(**fields: Any) -> Event:
    known = {"step": 7, "rows": 896, "rows_per_second": 1234.5, "loss": 0.25}
    return Event("progress", 0.0, {**known, **fields})


def evaluation(**metrics: float) -> Event:
    return Event("evaluation", 0.0, {"step": 7, "metrics": metrics})


def test_progress_gives_step_rows_speed_and_loss() -> None:
    lines = lines_after(progress())
    assert {
        "flambeau_step 7",
        "flambeau_rows_total 896",
        "flambeau_rows_per_second 1234.5",
        "flambeau_loss 0.25",
    } <= set(lines)


def test_only_the_latest_number_is_given() -> None:
    lines = lines_after(progress(), progress(step=8))
    assert [line for line in lines if line.startswith("flambeau_step")] == ["flambeau_step 8"]


def test_each_metric_has_its_name_as_a_label() -> None:
    lines = lines_after(evaluation(auc=0.75, logloss=0.5))
    assert 'flambeau_metric{name="auc"} 0.75' in lines
    assert 'flambeau_metric{name="logloss"} 0.5' in lines


def test_quotes_backslashes_and_newlines_in_a_name_are_escaped() -> None:
    lines = lines_after(evaluation(**{'a"b\\c\nd': 1.0}))
    assert r'flambeau_metric{name="a\"b\\c\nd"} 1.0' in lines


def test_restarts_are_counted_from_zero() -> None:
    restart = Event("restart", 0.0, {"generation": 2, "reason": "lost"})
    assert "flambeau_restarts_total 0" in lines_after()
    assert "flambeau_restarts_total 2" in lines_after(restart, restart)


def test_a_number_not_known_yet_is_left_out() -> None:
    assert not [line for line in lines_after() if line.startswith("flambeau_loss")]


def test_numbers_that_are_not_finite_are_written_as_prometheus_reads_them() -> None:
    assert "flambeau_loss NaN" in lines_after(progress(loss=float("nan")))
    assert "flambeau_loss +Inf" in lines_after(progress(loss=np.float32("inf")))


def test_every_number_has_a_help_and_a_type_line() -> None:
    lines = lines_after(progress(), evaluation(auc=0.5))
    named = {line.split(" ")[0].split("{")[0] for line in lines if not line.startswith("#")}
    for kind in ("HELP", "TYPE"):
        assert {line.split(" ")[2] for line in lines if line.startswith(f"# {kind}")} == named


def server(shard: int, **fields: Any) -> Event:
    table = {"rows": 5, "bytes": 320, "admitted": 7, "rejected": 1, "evicted": 2}
    known = {"shard": shard, "shards": 2, "pulls": 3, "busy_seconds": 0.5, "staleness": {"2": 4}}
    return Event("server", 0.0, {**known, "tables": {"item": table}, **fields})


def test_each_server_has_its_shard_as_a_label() -> None:
    lines = lines_after(server(0), server(1, pulls=4))
    assert {
        'flambeau_server_pulls_total{shard="0"} 3',
        'flambeau_server_pulls_total{shard="1"} 4',
        'flambeau_server_pushes_total{shard="1"} 0',
        'flambeau_server_busy_seconds_total{shard="0"} 0.5',
        'flambeau_server_staleness_mean{shard="0"} 2.0',
    } <= set(lines)


def test_the_rows_of_a_table_are_those_of_all_servers() -> None:
    lines = lines_after(server(0), server(0), server(1))
    assert {
        'flambeau_table_rows{table="item"} 10',
        'flambeau_table_bytes{table="item"} 640',
        'flambeau_table_admitted_total{table="item"} 14',
        'flambeau_table_rejected_total{table="item"} 2',
        'flambeau_table_evicted_total{table="item"} 4',
    } <= set(lines)


def test_each_client_has_its_rank_as_a_label() -> None:
    fields = {"pulls": 1, "pull_seconds_p99": 0.25, "ids_seen": 6, "ids_distinct": 4}
    lines = lines_after(Event("client", 0.0, {"rank": 3, **fields}))
    assert 'flambeau_client_pull_seconds_p99{rank="3"} 0.25' in lines
    assert 'flambeau_client_dedup{rank="3"} 1.5' in lines


def test_without_servers_nothing_is_said_of_them() -> None:
    text = "\n".join(lines_after(progress()))
    assert not any(word in text for word in ("server_", "table_", "client_"))


def test_the_numbers_of_servers_have_help_and_type_lines() -> None:
    client = Event("client", 0.0, {"rank": 0, "requests_resent": 0})
    lines = lines_after(server(0), client)
    named = {line.split(" ")[0].split("{")[0] for line in lines if not line.startswith("#")}
    for kind in ("HELP", "TYPE"):
        assert {line.split(" ")[2] for line in lines if line.startswith(f"# {kind}")} == named


def test_the_text_ends_with_a_newline() -> None:
    assert metrics_text(LatestMetrics()).endswith("\n")


def test_the_latest_numbers_are_kept_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.prom"
    observer = MetricsFile(path)
    observer.observe(Event("progress", 0.0, {"step": 7, "rows": 70}))
    observer.observe(Event("evaluation", 0.0, {"metrics": {"auc": 0.75}}))
    assert "flambeau_step 7" in path.read_text()
    assert 'flambeau_metric{name="auc"} 0.75' in path.read_text()
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.prom"]


def test_the_file_follows_what_servers_tell(tmp_path: Path) -> None:
    path = tmp_path / "metrics.prom"
    MetricsFile(path).observe(server(0))
    assert 'flambeau_server_pulls_total{shard="0"} 3' in path.read_text()
