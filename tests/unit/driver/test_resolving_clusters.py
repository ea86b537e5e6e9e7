"""What a cluster finds out about where it is, before anything is checked or written."""

from pathlib import Path
from typing import Self

import numpy as np
import pytest
from torch import nn

import flambeau as fb
from flambeau.config import RemoteCluster
from flambeau.coordination.payloads import ScriptPayload
from flambeau.driver.run import run_script
from flambeau.errors import ConfigError


class Joined(RemoteCluster):
    """As many workers as a launcher has started, which is found out late; no class places them."""

    found: int = 0

    def resolved(self) -> Self:
        if not self.found:
            raise ConfigError("no launcher has started this process")
        return self.model_copy(update={"workers": self.found})


def fit(cluster: Joined, run_dir: Path) -> None:
    fb.fit(
        nn.Linear(1, 1),
        train=(np.ones((4, 1), np.float32), np.ones((4, 1), np.float32)),
        loss="mse",
        strategy=fb.ParameterServer(backup_workers=2),
        cluster=cluster,
        run_dir=run_dir,
        observe={"progress": "none"},
    )


def test_settings_are_checked_with_the_workers_that_were_found(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"backup_workers=2 with 2 workers: give 0 to 1"):
        fit(Joined(found=2), tmp_path / "two")
    # These fit; what is missing is the class that places agents.
    with pytest.raises(ConfigError, match=r"cluster=Joined\(\.\.\.\): no class is registered"):
        fit(Joined(found=3), tmp_path / "three")


def test_a_cluster_that_is_not_there_is_found_out_first(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no launcher"):
        fit(Joined(), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="no launcher"):
        fb.run(print, cluster=Joined())
    with pytest.raises(ConfigError, match="no launcher"):
        run_script(ScriptPayload("script.py"), Joined())


def test_what_is_no_cluster_touches_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cluster='spark': give a cluster, such as fb\.Local"):
        fit("spark", tmp_path / "run")
    assert not (tmp_path / "run").exists()
