"""Samples per second and AUC of DLRM at the Criteo-Kaggle shape, against a plain torch DLRM."""

import argparse
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dlrm import samples_per_second
from measure import report, tell
from turns import HERE, Side, fastest, take_turns

CORES = 2
#: Rows of the table, few and many.
SIZES = (1_000_000, 30_000_000)
#: Clicks whose ids repeat often enough to be learnt; a tenth of them is held out. Few and many, for
#: what workers lose by not waiting for each other depends on how long they train. Seeds differ by
#: as much as the two sides do, and more so after few clicks: these have more of them.
AUC_SEEDS, AUC_IDS = {1_000_000: 12, 4_000_000: 4}, 20_000
VARIANTS = list(itertools.product(("one", "many"), ("2",), ("torch",)))
#: A peer that allows torch to lose digits, which it does not on every CPU.
ALLOWING = ("one", "2", "bf16")

Variant = tuple[str, str, str]


def main() -> None:
    """Both sides have the same two cores; the peer's are two threads of one process."""
    options = parse_options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for part in PARTS if options.parts == "all" else options.parts:
            PARTS[part](options, directory / part)


def in_precision(precision: str, options: argparse.Namespace, directory: Path) -> None:
    """Our samples/s in one precision, and the plain one's in fp32."""
    benchmark = f"recommender/dlrm_{precision}"
    against_plain(benchmark, lambda: ours(precision, 0, directory / "ours"), options, directory)
    tell_split(f"{benchmark}_step", directory / "ours")


def limit(options: argparse.Namespace, directory: Path) -> None:
    """The dense part alone in two processes, without anything else, and the plain model."""
    command = [sys.executable, str(HERE / "sides" / "bare_dlrm.py")]
    against_plain(
        "recommender/dlrm_fp32_limit",
        lambda: Side(directory / "bare", [command]),
        options,
        directory,
    )


def allowing(options: argparse.Namespace, directory: Path) -> None:
    """Our samples/s in fp32, and those of a plain model that may compute products in bf16."""
    against_plain(
        "recommender/dlrm_fp32_allowing_bf16",
        lambda: ours("fp32", 0, directory / "ours"),
        options,
        directory,
        ALLOWING,
    )


def against_plain(
    benchmark: str,
    start: Callable[[], Side],
    options: argparse.Namespace,
    directory: Path,
    variant: Variant | None = None,
) -> None:
    """The samples/s of what `start` starts, and of the plain model in fp32, its fastest form."""
    variant = variant or (VARIANTS[0] if options.quick else fastest_variant(directory))
    with start() as side, peer(variant, options.pairs + 1, directory / "peer") as peer_side:
        pairs = take_turns(side, peer_side, options.pairs, samples_per_second)
    named = f"{variant[0]} table(s)/{variant[1]} threads/fp32, products by {variant[2]}"
    report(benchmark, pairs, "samples/s", peer_variant=named)


def tell_split(benchmark: str, directory: Path) -> None:
    """Where the seconds of a step of our first worker went."""
    text = (directory / "run" / "report.json").read_text(encoding="utf-8")
    tell(benchmark, unit="seconds", **json.loads(text)["seconds_per_step"])


def in_bf16(options: argparse.Namespace, directory: Path) -> None:
    """Our bf16 against the plain fp32, unless this CPU has to emulate bf16."""
    reason = no_bf16()
    if reason is not None:
        tell("recommender/dlrm_bf16", skipped=reason)
    else:
        in_precision("bf16", options, directory)


def no_bf16() -> str | None:
    """Why bf16 is slow on this CPU, if it is."""
    from flambeau.training.half_precision import bf16_slowdown, bf16_warning

    return bf16_warning(bf16_slowdown())


def auc(options: argparse.Namespace, directory: Path) -> None:
    """After few and after many clicks."""
    for rows, seeds in ({50_000: 2} if options.quick else AUC_SEEDS).items():
        auc_after(rows, range(seeds), directory / str(rows))


def auc_after(rows: int, seeds: range, directory: Path) -> None:
    """Both trained on the same generated clicks, for as many steps, with the same optimizers."""
    from dlrm_auc import Clicks, our_auc, plain_aucs

    directory.mkdir(parents=True)
    clicks = Clicks(directory, rows, min(AUC_IDS, rows // 50))
    peer = plain_aucs(clicks, seeds, CORES)
    for precision in ("fp32",) if no_bf16() else ("fp32", "bf16"):
        runs = {seed: directory / f"{precision}-{seed}" for seed in seeds}
        found = [our_auc(clicks, seed, precision, run) for seed, run in runs.items()]
        tell(
            f"recommender/dlrm_{precision}_auc",
            rows=rows,
            ours=statistics.mean(found),
            peer=statistics.mean(peer),
            difference=statistics.mean(found) - statistics.mean(peer),
            standard_error=math.hypot(*(standard_error(each) for each in (found, peer))),
            all_ours=[round(each, 5) for each in found],
            all_peer=[round(each, 5) for each in peer],
            unit="AUC",
            seeds=len(seeds),
        )


def standard_error(values: Sequence[float]) -> float:
    """That of their mean."""
    return statistics.stdev(values) / math.sqrt(len(values))


def by_size(options: argparse.Namespace, directory: Path) -> None:
    """Many distinct ids against few, all with a row already."""
    few, many = (rows // 30 if options.quick else rows for rows in SIZES)
    with (
        ours("fp32", many, directory / "many") as large,
        ours("fp32", few, directory / "few") as small,
    ):
        pairs = take_turns(large, small, options.pairs, samples_per_second)
    report("recommender/many_ids", pairs, "samples/s", peer_variant=f"{few} ids, not {many}")


def fastest_variant(directory: Path) -> Variant:
    """The peer's best way."""
    return fastest(VARIANTS, lambda each, blocks: peer(each, blocks, directory / "-".join(each)))


def ours(precision: str, rows: int, directory: Path) -> Side:
    """`fb.fit` with two workers of one thread each, and a server that fits in between."""
    script = str(HERE / "sides" / "flambeau_dlrm.py")
    return Side(directory, [[sys.executable, script, precision, str(rows)]])


def peer(variant: Variant, blocks: int, directory: Path) -> Side:
    """The plain script."""
    script = str(HERE / "sides" / "torch_dlrm.py")
    return Side(directory, [[sys.executable, script, *variant, str(blocks)]])


PARTS = {
    "fp32": lambda options, directory: in_precision("fp32", options, directory),
    "bf16": in_bf16,
    "limit": limit,
    "allowing": allowing,
    "ids": by_size,
    "auc": auc,
}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="to see that it runs, no more")
    options = parser.parse_args()
    options.pairs = 2 if options.quick else options.pairs
    return options


if __name__ == "__main__":
    main()
