"""Processes of a launcher (`fb.Attached`): their start, and their speed on one host and on two.

`start`: seconds from the command to the first step under mpirun, against `fb.Local`. `speed`:
samples/s after that. `network`: two hosts in network namespaces (root), with a link of 1 Gbit/s
between them, against DDP under torchrun there; and asynchronous servers with gradients in bf16.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from all_reduce import VARIANTS
from measure import interleave, report
from startup import JOB, SIDES, first_step_under
from turns import HERE, Side, take_turns
from workloads import WORKERS, WORKLOADS

WORKLOAD = "mlp"
RATE = "1gbit"
#: Longer than the kernel waits at that rate, and no shorter than what a host sends at once.
BUCKET = ("burst", "256kb", "latency", "50ms")
PORT = 29511


def main() -> None:
    """Measure each part."""
    options = parse_options()
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    for name, measure in (("start", start), ("speed", speed), ("network", network)):
        if name in options.parts or "all" in options.parts:
            with tempfile.TemporaryDirectory() as folder:
                measure(Path(folder), options.pairs)


def start(folder: Path, pairs: int) -> None:
    """The start under mpirun."""
    compare_start("clusters/start", [*mpirun(), *train(folder), "~cluster"], folder, pairs)


def compare_start(name: str, ours: Sequence[str], folder: Path, pairs: int) -> None:
    """Whole commands, one after the other: ours, and the same job with `fb.Local`."""
    (folder / "job.yaml").write_text(JOB)
    (folder / "first_step.py").write_text((SIDES / "first_step.py").read_text())
    os.chdir(folder)  # where processes meet
    local = train(folder)
    first_step_under(ours, folder)
    first_step_under(local, folder)  # both sides' files are in memory from now on
    measured = interleave(
        lambda: first_step_under(ours, folder), lambda: first_step_under(local, folder), pairs
    )
    both = zip(measured.ours, measured.peer, strict=True)
    more = statistics.median(ours - peer for ours, peer in both)
    report(name, measured, "s", higher_is_better=False, seconds_more=round(more, 2))


def train(folder: Path) -> list[str]:
    return [sys.executable, "-m", "flambeau", "train", str(folder / "job.yaml")]


def speed(folder: Path, pairs: int) -> None:
    """The speed under mpirun."""
    compare_speed("clusters/speed", mpirun(), folder, pairs)


def compare_speed(name: str, launcher: Sequence[str], folder: Path, pairs: int) -> None:
    """A training behind a launcher, and the same one with `fb.Local`: both take turns."""
    script = [sys.executable, str(HERE / "sides" / "flambeau_fit.py"), WORKLOAD, str(pairs + 1)]
    os.chdir(folder)
    with (
        Side(folder / "ours", [[*launcher, *script]]) as ours,
        Side(folder / "peer", [script]) as peer,
    ):
        measured = take_turns(ours, peer, pairs, WORKLOADS[WORKLOAD].samples_per_second)
    report(name, measured, "samples/s", peer_variant="fb.Local")


def network(folder: Path, pairs: int) -> None:
    """All-reduce and asynchronous servers, each against DDP."""
    os.chdir(folder)
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    variant = ("indexed", "fused")
    assert variant in VARIANTS
    blocks = str(pairs + 1)
    all_reduce = [str(HERE / "sides" / "flambeau_fit.py"), WORKLOAD, blocks]
    free = [str(HERE / "sides" / "flambeau_async.py"), WORKLOAD, "bf16"]
    ddp = [str(HERE / "sides" / "torch_ddp.py"), WORKLOAD, *variant, blocks, "env", "env"]
    with two_hosts():
        for number, (name, script) in enumerate({"all_reduce": all_reduce, "bf16": free}.items()):
            places = folder / f"{name}-ours", folder / f"{name}-peer"
            with (
                Side(places[0], on_hosts(script, PORT + 2 * number)) as ours,
                Side(places[1], on_hosts(ddp, PORT + 2 * number + 1)) as peer,
            ):
                measured = take_turns(ours, peer, pairs, WORKLOADS[WORKLOAD].samples_per_second)
            report(
                f"clusters/network/{name}", measured, "samples/s", peer_variant="/".join(variant)
            )


def on_hosts(script: Sequence[str], port: int) -> list[list[str]]:
    """A script under torchrun on each host, with a core of its own and no shared memory."""
    cores = sorted(os.sched_getaffinity(0))
    return [
        [
            *["ip", "netns", "exec", host(number)],
            *["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"],
            *["taskset", "--cpu-list", str(cores[number])],
            *[sys.executable, "-m", "torch.distributed.run", "--nnodes", str(WORKERS)],
            *["--nproc-per-node", "1", "--node-rank", str(number)],
            *["--master-addr", address(0), "--master-port", str(port)],
            *script,
        ]
        for number in range(WORKERS)
    ]


def host(number: int) -> str:
    return f"flambeau-{os.getpid()}-{number}"


def address(number: int) -> str:
    return f"10.77.0.{number + 1}"


@contextmanager
def two_hosts() -> Iterator[None]:
    """Two network namespaces, joined by a link of limited rate."""
    if os.getuid() != 0 or shutil.which("tc") is None:
        raise SystemExit("network needs root and iproute2: apt-get install iproute2")
    ends = [f"fb{os.getpid() % 100000}-{number}" for number in range(2)]
    try:
        for number in range(2):
            ip("netns", "add", host(number))
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for number, end in enumerate(ends):
            inside = ("-netns", host(number))
            ip("link", "set", end, "netns", host(number), "name", "eth0")
            ip(*inside, "addr", "add", f"{address(number)}/24", "dev", "eth0")
            ip(*inside, "link", "set", "eth0", "up")
            ip(*inside, "link", "set", "lo", "up")
            limit = ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", RATE, *BUCKET]
            subprocess.run(["tc", *inside, *limit], check=True)
        yield
    finally:
        for number in range(2):
            subprocess.run(["ip", "netns", "delete", host(number)], check=False)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def mpirun() -> list[str]:
    """The launcher that `make test` installs, or the machine's own."""
    own = Path(sys.prefix) / "openmpi" / "bin" / "mpirun"
    found = str(own) if own.exists() else shutil.which("mpirun")
    if found is None:
        raise SystemExit(
            "there is no mpirun: make test installs one, or apt-get install openmpi-bin"
        )
    # Workers pin themselves.
    options = ["--oversubscribe", "--bind-to", "none", "-n", str(WORKERS)]
    return [found, *(["--allow-run-as-root"] if os.getuid() == 0 else []), *options]


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="*", default=["all"], choices=["start", "speed", "network", "all"]
    )
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="to see that it runs, no more")
    options = parser.parse_args()
    options.pairs = 2 if options.quick else options.pairs
    return options


if __name__ == "__main__":
    main()
