"""From a cluster's settings to the class that places its agents."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from flambeau.clusters import registry
from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.clusters.local import LocalCluster
from flambeau.clusters.registry import open_cluster, register
from flambeau.config import ClusterSettings, Local, RemoteCluster, Spark
from flambeau.errors import ConfigError, MissingDependencyError


class Nearby(RemoteCluster):
    """A cluster of somebody else's."""


class NearbyCluster(Cluster):
    coordinator_host = "127.0.0.1"

    def __init__(self, settings: Nearby, frames: Mapping[str, Any]) -> None:
        self.agents, self.frames = settings.workers, frames

    def start(self, launch: Launch) -> None: ...

    def poll(self) -> list[AgentEnded]:
        return []

    def restart(self, agents: Sequence[int]) -> None: ...

    def stop(self) -> None: ...


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = dict(registry._PLACED)
    yield
    registry._PLACED.clear()
    registry._PLACED.update(before)


def test_local_is_known() -> None:
    assert isinstance(open_cluster(Local(2), {}), LocalCluster)


def test_anybody_may_register_a_cluster() -> None:
    register(Nearby, f"{__name__}:NearbyCluster")
    placed = open_cluster(Nearby(workers=3), {"train": 1})
    assert isinstance(placed, NearbyCluster)
    assert (placed.agents, placed.frames) == (3, {"train": 1})


def test_settings_without_a_class() -> None:
    class Unknown(ClusterSettings):
        """Nobody places it."""

    with pytest.raises(
        ConfigError, match=r"known are Local, Attached, Ssh, Spark.*register\(Unknown"
    ):
        open_cluster(Unknown(), {})


def test_a_library_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "flambeau.clusters.spark.cluster", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingDependencyError, match=r"needs PySpark .*pip install 'flambeau\[sp"):
        open_cluster(Spark(2), {})


def test_a_mistake_of_a_module_is_not_called_a_missing_library() -> None:
    register(Nearby, "no_such_module:NearbyCluster")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        open_cluster(Nearby(), {})
