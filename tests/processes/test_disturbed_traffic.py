"""Every gradient is applied exactly once, whatever becomes of messages on their way."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from toy import QUIET, SparseNet, assert_same_tables, assert_same_weights, make_clicks
from zmtp_proxy import ZmtpProxy

import flambeau as fb
from flambeau.driver.control.generation import Generation

FAULTS: dict[str, Any] = {"drop": 0.01, "duplicate": 0.1, "delay": (0.0, 0.01), "cut": 0.02}


@contextmanager
def disturbed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """All traffic between workers and servers goes through proxies; what they did to it."""
    proxies: dict[str, ZmtpProxy] = {}
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        addresses = Generation._server_list

        def through_proxies(self: Generation) -> list[str]:
            real = addresses(self)
            for seed, address in enumerate(real):
                if address not in proxies:
                    proxies[address] = stack.enter_context(ZmtpProxy(address, seed, **FAULTS))
            return [proxies[address].address for address in real]

        monkeypatch.setattr(Generation, "_server_list", through_proxies)
        yield counts
        for proxy in proxies.values():
            counts.update(proxy.counts)


def train(path: Path, consistency: Any, workers: int) -> Any:
    return fb.fit(
        SparseNet(prefetch=True),
        make_clicks(200),
        loss="bce",
        label="label",
        optimizer=fb.optim("adam", lr=0.02),
        batch_size=16 // workers,
        epochs=2,
        strategy=fb.ParameterServer(servers=2, consistency=consistency),
        cluster=fb.Local(workers),
        observe=QUIET,
        run_dir=path,
    )


@pytest.mark.parametrize(("consistency", "workers"), [("synchronous", 2), ("asynchronous", 1)])
def test_lost_doubled_and_cut_messages_change_nothing(
    consistency: Any, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = train(tmp_path / "plain", consistency, workers)
    with disturbed(monkeypatch) as counts:
        result = train(tmp_path / "disturbed", consistency, workers)
    assert counts["dropped"] > 0
    assert counts["duplicated"] > 0
    assert counts["cut"] > 0
    assert_same_weights(plain, result, exactly=True)
    assert_same_tables(plain, result, exactly=True)
    rows = {"read": 400, "applied": 400, "dropped": 0, "repeated": 0, "skipped": 0}
    assert result.report["rows"] == rows
    resent = [client["requests_resent"] for client in result.report["clients"].values()]
    assert sum(resent) > 0
