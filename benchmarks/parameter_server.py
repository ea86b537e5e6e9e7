"""Rows per second through servers on loopback, against torch's RPC; latency, memory, growth."""

import argparse
import itertools
import secrets
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from asking import Program, ask_all
from measure import Pairs, interleave, report, tell
from rows import BATCH_ROWS

from flambeau.clusters.process_starter import KEEP_MEMORY

TRANSPORTS = ("any", "tcp")
THREADS = (1, 2)
UPDATES = ("index", "optimizer")
PLAIN = "one server, one client, shared memory, not encrypted"
QUESTIONS = ("pull", "push", "pull_few")
TRIALS = 3
#: Bytes that a row may cost beside its values and its optimizer's state.
MOST_BYTES_A_ROW = 24


@dataclass(frozen=True)
class Variant:
    """One way in which the peer can be run."""

    transport: str
    threads: int
    update: str

    def __str__(self) -> str:
        return f"{self.transport}/{self.threads} threads/{self.update}"


@dataclass(frozen=True)
class Served:
    """Clients whose servers are up, and what the servers said of their tables."""

    clients: list[Program]
    servers: list[Program]
    tables: list[dict[str, Any]]

    @contextmanager
    def alone(self, *others: "Served") -> Iterator[None]:
        """While it lasts, the processes of the others rest."""
        resting = [program for side in others for program in (*side.clients, *side.servers)]
        for program in resting:
            program.rest()
        try:
            yield
        finally:
            for program in resting:
                program.wake()

    def rows_per_second(self, do: str, requests: int) -> float:
        """The speed of all clients together, until the last is done."""
        answers = ask_all(self.clients, do=do, count=requests)
        rows = len(self.clients) * requests * BATCH_ROWS
        return float(rows / max(answer["seconds"] for answer in answers))


def main() -> None:
    """All measurements, from those that need the least memory on."""
    options = parse_options()
    for part in PARTS if options.parts == "all" else options.parts:
        PARTS[part](options)


def against_rpc(options: argparse.Namespace) -> None:
    """Pull and push in large batches, and the time that a pull of a few ids takes."""
    fastest = fastest_variants(options)
    with ours(options.rows) as our_side:
        for do in ("pull", "push"):
            with peer(options.rows, fastest[do]) as peer_side:
                pairs = compare(our_side, peer_side, do, options)
            report(f"parameter_server/{do}", pairs, "rows/s", peer_variant=str(fastest[do]))
        variant = fastest["pull_few"]
        with peer(options.rows, variant) as peer_side:
            compare_latency(our_side, peer_side, options, peer_variant=str(variant))


def fastest_variants(options: argparse.Namespace) -> dict[str, Variant]:
    """The peer's best way to do each thing, in a short run of all of them."""
    ways = list(itertools.starmap(Variant, itertools.product(TRANSPORTS, THREADS, UPDATES)))
    seconds = {variant: trial(variant, options) for variant in ways[: options.variants]}
    return {do: min(seconds, key=lambda variant: seconds[variant][do]) for do in QUESTIONS}


def trial(variant: Variant, options: argparse.Namespace) -> dict[str, float]:
    """The median seconds of a few blocks, of which the first is not counted."""
    count = max(1, options.requests // 4)
    with peer(options.rows, variant) as side:
        (client,) = side.clients
        seconds = {
            do: [client.ask(do=do, count=count)["seconds"] for _ in range(TRIALS + 1)]
            for do in QUESTIONS
        }
    return {do: statistics.median(values[1:]) for do, values in seconds.items()}


def compare(first: Served, second: Served, do: str, options: argparse.Namespace) -> Pairs:
    """Rows per second of both; what is not counted warms them up."""

    def measure(side: Served, other: Served) -> float:
        with side.alone(other):
            return side.rows_per_second(do, options.requests)

    for side, other in ((first, second), (second, first)):
        measure(side, other)
    return interleave(lambda: measure(first, second), lambda: measure(second, first), options.pairs)


def compare_latency(
    first: Served, second: Served, options: argparse.Namespace, **more: Any
) -> None:
    """Microseconds of a pull of 8 ids, one after the other."""
    slowest: dict[str, list[float]] = {"ours": [], "peer": []}

    def measure(who: str, side: Served, other: Served) -> float:
        with side.alone(other):
            answer = side.clients[0].ask(do="pull_few", count=10 * options.requests)
        slowest[who].append(1e6 * answer["p99"])
        return float(1e6 * answer["p50"])

    pairs = interleave(
        lambda: measure("ours", first, second),
        lambda: measure("peer", second, first),
        options.pairs,
    )
    p99 = {f"{who}_p99": statistics.median(values) for who, values in slowest.items()}
    name = "parameter_server/pull_8_ids_p50"
    report(name, pairs, "us", higher_is_better=False, **p99, **more)


def against_ourselves(options: argparse.Namespace) -> None:
    """Without shared memory, encrypted, and with a second server and a second client."""
    others: dict[str, dict[str, Any]] = {
        "through_sockets": {"share": False},
        "encrypted": {"encrypt": True},
        "two_servers_two_clients": {"servers": 2, "clients": 2},
    }
    with ours(options.rows) as plain:
        for name, settings in others.items():
            with ours(options.rows, **settings) as other:
                for do in ("pull", "push"):
                    pairs = compare(other, plain, do, options)
                    benchmark = f"parameter_server/{name}_{do}"
                    report(benchmark, pairs, "rows/s", peer_variant=PLAIN)


def by_size(options: argparse.Namespace) -> None:
    """Speed, memory and pauses of small and large tables, which take turns; and of bare memory."""
    with ExitStack() as stack:
        sides = {rows: stack.enter_context(ours(rows)) for rows in options.sizes}
        rates = {do: rates_by_size(sides, do, options) for do in ("pull", "push")}
    with ExitStack() as stack:
        bare = {rows: stack.enter_context(in_memory(rows)) for rows in options.sizes}
        rates["bare"] = rates_by_size(bare, "pull", options)
    for rows, side in sides.items():
        speeds = {f"{do}_rows_per_second": rates[do][rows] for do in rates}
        name = f"parameter_server/{rows / 1e6:g}_million_rows"
        tell(name, **speeds, **side.tables[0], limit_bytes_a_row=MOST_BYTES_A_ROW)
    for do, medians in rates.items():
        spread = min(medians.values()) / max(medians.values())
        tell(f"parameter_server/{do}_by_size", slowest_to_fastest=spread, pairs=options.pairs)


def rates_by_size(
    sides: dict[int, Served], do: str, options: argparse.Namespace
) -> dict[int, float]:
    """The median rows per second of each, after a first round that is not counted."""
    rates: dict[int, list[float]] = {rows: [] for rows in sides}
    for _ in range(options.pairs + 1):
        for rows, side in sides.items():
            rates[rows].append(side.rows_per_second(do, options.requests))
    return {rows: statistics.median(values[1:]) for rows, values in rates.items()}


@contextmanager
def ours(
    rows: int, *, servers: int = 1, clients: int = 1, encrypt: bool = False, share: bool = True
) -> Iterator[Served]:
    """Our servers with a table of `rows`, and clients of them."""
    secret = secrets.token_hex(32)
    access = {"rows": rows, "secret": secret, "encrypt": encrypt, "share": share}
    with ExitStack() as stack:
        shards = [
            Program(
                "table_server.py",
                settings={**access, "index": index, "count": servers},
                environment=KEEP_MEMORY,  # as an agent starts its roles
            )
            for index in range(servers)
        ]
        tables = [stack.enter_context(shard).hear() for shard in shards]
        addresses = [table.pop("address") for table in tables]
        programs = [
            Program(
                "table_client.py",
                settings={**access, "worker": n, "addresses": addresses},
                environment=KEEP_MEMORY,
            )
            for n in range(clients)
        ]
        yield Served([stack.enter_context(program) for program in programs], shards, tables)


@contextmanager
def peer(rows: int, variant: Variant) -> Iterator[Served]:
    """The same rows behind torch's RPC."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        settings = {
            "rows": rows,
            "transport": variant.transport,
            "update": variant.update,
            "directory": directory,
        }
        server, client = (
            stack.enter_context(
                Program("rpc_rows.py", role, settings=settings, threads=variant.threads)
            )
            for role in ("server", "client")
        )
        yield Served([client], [server], [])


@contextmanager
def in_memory(rows: int) -> Iterator[Served]:
    """As many rows in a plain tensor, which one thread reads, in huge pages as ours are."""
    with Program(
        "bare_rows.py", settings={"rows": rows}, threads=1, environment=KEEP_MEMORY
    ) as program:
        yield Served([program], [], [])


PARTS = {"rpc": against_rpc, "ourselves": against_ourselves, "sizes": by_size}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default="all", choices=[*PARTS, "all"])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**6, 10**7, 5 * 10**7])
    parser.add_argument("--requests", type=int, default=200, help="requests in a measurement")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="to see that it runs, no more")
    options = parser.parse_args()
    options.variants = 1 if options.quick else None
    if options.quick:
        options.rows, options.sizes = 200_000, [50_000, 100_000, 200_000]
        options.requests, options.pairs = 8, 2
    return options


if __name__ == "__main__":
    main()
