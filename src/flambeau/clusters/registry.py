"""Registry of the cluster classes, by the type of their settings."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flambeau.clusters.base import Cluster
from flambeau.config.clusters import Attached, ClusterSettings, Local, Ray, Spark, Ssh
from flambeau.errors import ConfigError, MissingDependencyError


@dataclass(frozen=True)
class _Placed:
    by: str
    needs: str | None
    extra: str | None


_PLACED: dict[type[ClusterSettings], _Placed] = {}


def register(
    settings: type[ClusterSettings], by: str, needs: str | None = None, extra: str | None = None
) -> None:
    """Register the class `by` ("module:name", called with settings and frames) for `settings`.

    It is imported when the first job of that kind starts. For error messages, `needs` names the
    library that it imports, and `extra` is the extra of Flambeau that installs this library.
    """
    _PLACED[settings] = _Placed(by, needs, extra)


register(Local, "flambeau.clusters.local:LocalCluster")
register(Attached, "flambeau.clusters.attached.cluster:AttachedCluster")
register(Ssh, "flambeau.clusters.ssh.cluster:SshCluster")
register(Spark, "flambeau.clusters.spark.cluster:SparkCluster", needs="PySpark", extra="spark")
register(Ray, "flambeau.clusters.ray.cluster:RayCluster", needs="Ray", extra="ray")


def open_cluster(settings: ClusterSettings, frames: Mapping[str, Any]) -> Cluster:
    """Return the cluster for these settings; `frames` are data frames of its engine, by name."""
    kind = type(settings)
    placed = _PLACED.get(kind)
    if placed is None:
        known = ", ".join(each.__name__ for each in _PLACED)
        raise ConfigError(
            f"cluster={kind.__name__}(...): no class is registered that places its agents; known "
            f"are {known}. Call flambeau.clusters.registry.register({kind.__name__}, "
            "'module:class') first"
        )
    module, _, name = placed.by.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        if placed.needs is None:
            raise
        raise MissingDependencyError(
            f"cluster={kind.__name__}(...) needs {placed.needs} ({error}): "
            f"pip install 'flambeau[{placed.extra}]'"
        ) from error
    cluster: Cluster = found(settings, frames)
    return cluster
