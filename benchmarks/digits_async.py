"""Accuracy on handwritten digits with four asynchronous workers, against all-reduce with four."""

import argparse
import statistics
import tempfile
from pathlib import Path

from measure import tell

import flambeau as fb
from flambeau.cli import digits
from flambeau.models import MLP

WORKERS = 4
PIXELS = 64

STRATEGIES = {
    "ours": fb.ParameterServer(consistency="asynchronous"),
    "peer": fb.AllReduce(),
}


def main() -> None:
    """Train with both strategies from each seed; everything else is the same."""
    options = parse_options()
    points = {
        side: [100 * accuracy(strategy, seed, options.epochs) for seed in range(options.seeds)]
        for side, strategy in STRATEGIES.items()
    }
    ours, peer = (statistics.mean(points[side]) for side in ("ours", "peer"))
    tell(
        "digits_async",
        ours=ours,
        peer=peer,
        difference=ours - peer,
        unit="% of held-out digits",
        ours_lowest=min(points["ours"]),
        peer_lowest=min(points["peer"]),
        seeds=options.seeds,
    )


def accuracy(strategy: fb.AllReduce | fb.ParameterServer, seed: int, epochs: int) -> float:
    """The share of held-out digits that are recognised at the end."""
    with tempfile.TemporaryDirectory() as directory:
        result = fb.fit(
            build,
            train=digits.train(),
            valid=digits.held_out(),
            loss="cross_entropy",
            optimizer=fb.optim("adam", lr=1e-3),
            metrics=["accuracy"],
            batch_size=32,
            epochs=epochs,
            seed=seed,
            strategy=strategy,
            cluster=fb.Local(WORKERS),
            checkpoints=fb.Checkpoints(every_epochs=None),
            evaluation={"every_epochs": None},
            observe={"progress": "none"},
            run_dir=Path(directory) / "run",
        )
        return float(result.metrics["accuracy"])


def build() -> MLP:
    """A small perceptron over 8 x 8 pixels."""
    return MLP(PIXELS, hidden=(64, 64))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="to see that it runs, no more")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.epochs = 1, 3
    return options


if __name__ == "__main__":
    main()
