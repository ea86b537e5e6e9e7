"""The coordinator with many simulated workers, against a bare ROUTER socket in Python.

Both get the same messages from the same number of connections of this machine. `saturated`: every
role sends its next message as soon as it may. `paced`: workers train on a task for a second, or
make two rounds in a second.
"""

import argparse
import statistics
import time
from dataclasses import dataclass
from functools import partial

from asking import Program
from measure import Pairs, interleave, report
from simulated_strategies import SIMULATIONS

from flambeau.clusters.open_files import raise_open_files

WORKERS = (16, 64, 256, 1000)
SERVERS = 4
WARM_SECONDS = 1.0


@dataclass(frozen=True)
class Measured:
    """One measurement of one side; CPU in cores, latencies in milliseconds."""

    messages_per_second: float
    cpu: float
    simulation_cpu: float
    median_ms: float
    p99_ms: float
    answers: int

    @property
    def microseconds(self) -> float:
        """Processor time per message."""
        return 1e6 * self.cpu / self.messages_per_second


def measure(
    side: str, strategy: str, workers: int, mode: str, options: argparse.Namespace
) -> Measured:
    """Run a coordinator or a bare socket for some seconds."""
    given = {"strategy": strategy, "workers": workers, "servers": SERVERS}
    profile = options.profile if side == "ours" else None
    with Program("coordinator_process.py", side, settings={**given, "profile": profile}) as program:
        where = program.hear()
        secret = bytes.fromhex(where["secret"])
        with SIMULATIONS[strategy](where["address"], secret, workers, SERVERS) as simulation:
            simulation.join() if side == "ours" else simulation.connect()
            simulation.saturate() if mode == "saturated" else simulation.pace()
            simulation.run(WARM_SECONDS)
            cpu, own_cpu = program.cpu_seconds(), time.process_time()
            figures = simulation.measure(options.seconds)
            cpu, own_cpu = program.cpu_seconds() - cpu, time.process_time() - own_cpu
            simulation.finish() if side == "ours" else simulation.disconnect()
            # Connections must last until it has ended: it may still answer what was sent before.
            if failure := program.hear()["failure"]:
                raise RuntimeError(failure)
    return Measured(
        figures.messages / figures.seconds,
        cpu / figures.seconds,
        own_cpu / figures.seconds,
        figures.latency_ms(0.5),
        figures.latency_ms(0.99),
        len(figures.latencies),
    )


def compare(strategy: str, workers: int, mode: str, options: argparse.Namespace) -> None:
    """Measure both sides in turns, and print what came out."""
    ours: list[Measured] = []
    bare: list[Measured] = []

    def value(side: str, into: list[Measured]) -> float:
        into.append(measure(side, strategy, workers, mode, options))
        return into[-1].messages_per_second if mode == "saturated" else into[-1].cpu

    pairs: Pairs = interleave(
        partial(value, "ours", ours), partial(value, "bare", bare), options.pairs
    )

    def median(of: list[Measured], name: str) -> float:
        return float(statistics.median(getattr(each, name) for each in of))

    report(
        f"coordinator/{strategy}/{workers}/{mode}",
        pairs,
        "messages/s" if mode == "saturated" else "cores",
        higher_is_better=mode == "saturated",
        messages_per_second=median(ours, "messages_per_second"),
        peer_messages_per_second=median(bare, "messages_per_second"),
        cpu=median(ours, "cpu"),
        peer_cpu=median(bare, "cpu"),
        microseconds_per_message=median(ours, "microseconds"),
        peer_microseconds_per_message=median(bare, "microseconds"),
        median_ms=median(ours, "median_ms"),
        p99_ms=median(ours, "p99_ms"),
        peer_median_ms=median(bare, "median_ms"),
        peer_p99_ms=median(bare, "p99_ms"),
        answers=sum(each.answers for each in ours),
        simulation_cpu=median(ours, "simulation_cpu"),
        peer_simulation_cpu=median(bare, "simulation_cpu"),
    )


def main() -> None:
    """Measure all sizes of all strategies that were asked for."""
    options = parse_options()
    raise_open_files()
    for strategy in options.strategies:
        for workers in options.workers:
            for mode in ("paced", "saturated"):
                compare(strategy, workers, mode, options)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategies", nargs="+", choices=SIMULATIONS, default=[*SIMULATIONS])
    parser.add_argument("--workers", nargs="+", type=int, default=WORKERS)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--profile", help="a file for the last profile of the coordinator")
    parser.add_argument("--quick", action="store_true", help="to see that it runs, no more")
    options = parser.parse_args()
    if options.quick:
        options.workers, options.seconds, options.pairs = (16,), 1.0, 1
    return options


if __name__ == "__main__":
    main()
