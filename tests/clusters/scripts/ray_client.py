"""A program outside of a Ray: `python ray_client.py FOLDER EPOCHS [SCENARIO]`."""

import sys
import time
from pathlib import Path

import numpy as np
from torch import Tensor, nn

import flambeau as fb
from flambeau.errors import WorkerFailedError
from flambeau.training.callbacks import Callback, TrainingView


class Net(nn.Module):
    """Of a program, so it is sent by value."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x)
        return result


class Slow(Callback):
    def on_step_end(self, view: TrainingView) -> None:
        time.sleep(0.2)
        if view.first and view.step == 6:
            print("begun", flush=True)


def fail() -> None:
    raise LookupError("on purpose")


folder, epochs, scenario = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rng = np.random.default_rng(0)
x = rng.normal(size=(400, 4)).astype("float32")
y = (x[:, 0] > 0).astype("int64")
cluster = fb.Ray(2, driver_dir=str(folder / "head"))
result = fb.fit(
    Net,
    (x, y),
    valid=(x, y),
    loss="cross_entropy",
    metrics=["accuracy"],
    optimizer=fb.optim("adam", lr=0.05),
    epochs=epochs,
    callbacks=[] if scenario == "quick" else [Slow()],
    checkpoints={"every_steps": 2},
    cluster=cluster,
    run_dir=folder / "run",
)
assert result.run_dir == folder / "run"
assert result.is_driver
print("step", result.report["step"], "accuracy", result.metrics["accuracy"])
if scenario == "quick":
    print("model", result.model(result.model.layer.weight.new_zeros(1, 4)).shape)
    print("evaluated", result.evaluate((x, y), cluster=cluster)["accuracy"])
    print("predicted", result.predict({"x": x}, folder / "scores", cluster=cluster))
    print("ran", fb.run(lambda: 5, cluster=cluster))
    try:
        fb.run(fail, cluster=cluster)
    except WorkerFailedError as error:
        print("failed", error.args[0], "LookupError: on purpose" in str(error))
