"""A model with tables on two servers, trained asynchronously. The same as job.yaml."""

import argparse

import clicks

import flambeau as fb


def main() -> None:
    options = parse_options()
    result = fb.fit(
        clicks.ClickModel(dim=8),
        train=clicks.train(),
        valid=clicks.valid(),
        label="label",
        loss="bce",
        optimizer=fb.optim("adam", lr=3e-3),
        table_optimizer=fb.optim("adagrad", lr=0.1),
        metrics=["auc"],
        batch_size=256,
        epochs=options.epochs,
        strategy=fb.ParameterServer(
            servers=options.servers, consistency=options.consistency, non_finite="skip"
        ),
        cluster=fb.Local(options.workers),
        checkpoints=fb.Checkpoints(keep=2, best="auc"),
        recovery={"max_restarts": 2},
        run_dir=options.run_dir,
    )
    print(f"auc {result.metrics['auc']:.4f}, run directory {result.run_dir}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument(
        "--consistency", default="asynchronous", choices=["synchronous", "bounded", "asynchronous"]
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--run-dir", default="runs/clicks")
    return parser.parse_args()


if __name__ == "__main__":
    main()
