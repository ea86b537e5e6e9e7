"""A driver process for tests that interrupt or kill one: `python driver.py RUN_DIR [RECOVERY]`."""

import json
import sys

from toy import Net, Slow, make_data

import flambeau as fb

if __name__ == "__main__":
    fb.fit(
        Net(),
        make_data(2000),
        loss="cross_entropy",
        batch_size=8,
        epochs=50,
        cluster=fb.Local(2),
        checkpoints={"every_steps": 10},
        observe={"progress": "lines"},
        recovery=json.loads(sys.argv[2]) if len(sys.argv) > 2 else None,
        callbacks=[Slow(0.02)],
        run_dir=sys.argv[1],
    )
