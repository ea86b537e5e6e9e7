"""The simulated workers of the coordinator's benchmark speak the real protocol."""

import threading
from pathlib import Path
from typing import Any

import pytest

from flambeau.clusters.base import Launch
from flambeau.config import Recovery
from flambeau.coordination.payloads import ScriptPayload
from flambeau.driver.control.controller import Controller
from flambeau.driver.topology import Topology

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
WORKERS, SERVERS = 4, 2


@pytest.mark.parametrize("strategy", ["tasks", "rounds"])
def test_a_job_of_simulated_workers_begins_works_and_ends(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.syspath_prepend(BENCHMARKS / "sides")
    import coordinator_process as side
    from simulated_strategies import SIMULATIONS

    coordinator = side.coordinator(strategy, WORKERS, SERVERS)
    topology = Topology(WORKERS, servers=SERVERS, coordinator=coordinator)
    controller = Controller(
        topology, side.SimulatedElsewhere(), side.Silent(), Recovery(), graceful=True
    )
    answers: list[Any] = []

    def simulate() -> None:
        with SIMULATIONS[strategy](
            controller.address, controller.secret, WORKERS, SERVERS
        ) as simulation:
            simulation.join()
            simulation.saturate()
            simulation.run_until(lambda: len(simulation.latencies) > 3 * WORKERS)
            answers.extend(simulation.latencies)
            simulation.finish()

    thread = threading.Thread(target=simulate)
    thread.start()
    launch = Launch(controller.address, controller.secret, "", ScriptPayload("simulated.py"))
    outcome = controller.run(launch)
    thread.join()
    assert outcome.failure is None
    assert len(answers) > 3 * WORKERS
    assert sorted(outcome.summaries) == list(range(WORKERS))
