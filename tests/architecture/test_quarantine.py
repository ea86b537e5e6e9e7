"""Heavy libraries are imported where they are needed and nowhere else."""

import os
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch

import pytest
from source_tree import SRC, Rule, SourceFile, imports, source_files

HOMES = {
    "pyspark": ("clusters/spark*", "features/*spark*", "spark/*", "compat/sparktorch*"),
    "ray": ("clusters/ray*", "features/*ray*"),
}
# What the driver and the agents load: they start before torch, or without it.
LEAN = {"errors", "config", "observe", "messaging", "coordination", "clusters", "cli"}
LOADS_TORCH = ("torch", "torchvision", "safetensors.torch")
HEAVY = ("torch", "pyspark", "ray", "numba", "pandas")


def strays(file: SourceFile) -> Iterator[str]:
    """Imports of an engine outside its homes."""
    for item in imports(file):
        for library, homes in HOMES.items():
            if item.is_from(library) and not any(fnmatch(file.name, home) for home in homes):
                yield file.at(item.line, f"{library} belongs in {', '.join(homes)}")


def eager_torch(file: SourceFile) -> Iterator[str]:
    """Imports of torch that happen when a lean file is imported."""
    for item in imports(file):
        if file.package in LEAN and item.on_import and any(map(item.is_from, LOADS_TORCH)):
            yield file.at(item.line, f"{file.package} may import torch inside functions only")


def distribution_in_models(file: SourceFile) -> Iterator[str]:
    """Models that know about other processes."""
    for item in imports(file):
        if file.package == "models" and item.is_from("torch.distributed"):
            yield file.at(item.line, "a model never mentions distribution")


def loaded_by(module: str, names: tuple[str, ...]) -> list[str]:
    """Which of `names` a new interpreter has loaded after importing `module`."""
    code = f"import sys, {module}; print(*[name for name in {names!r} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.mark.parametrize("rule", [strays, eager_torch, distribution_in_models])
def test_heavy_libraries_stay_where_they_belong(rule: Rule) -> None:
    found = [violation for file in source_files() for violation in rule(file)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("module", ["flambeau", "flambeau.clusters.agent", "flambeau.cli"])
def test_driver_and_agent_start_without_heavy_libraries(module: str) -> None:
    assert loaded_by(module, HEAVY) == []


def test_the_probe_sees_what_a_module_loads() -> None:
    assert loaded_by("json", ("json", "decimal")) == ["json"]


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (strays, "data/spark.py", "import pyspark"),
        (strays, "driver/run.py", "def late():\n    from pyspark.sql import SparkSession"),
        (strays, "clusters/spark/cluster.py", "import ray"),
        (strays, "clusters/ray_engine/actors.py", "from pyspark import SparkContext"),
        (eager_torch, "clusters/agent.py", "import torch"),
        (eager_torch, "observe/tensorboard.py", "from torch.utils import tensorboard"),
        (eager_torch, "messaging/frames.py", "try:\n    import torch\nexcept ImportError: ..."),
        (distribution_in_models, "models/vision/lenet.py", "import torch.distributed as dist"),
        (distribution_in_models, "models/vision/lenet.py", "from torch import distributed"),
    ],
)
def test_a_stray_import_is_found(rule: Rule, name: str, source: str) -> None:
    assert len(list(rule(SourceFile(name, source)))) == 1


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (strays, "clusters/spark/cluster.py", "import pyspark"),
        (strays, "features/engines/spark.py", "from pyspark.sql import functions"),
        (strays, "clusters/ray/cluster.py", "import ray"),
        (strays, "driver/run.py", "from flambeau.clusters import ray"),
        (eager_torch, "data/batch.py", "import torch"),
        (eager_torch, "cli/train.py", "def late():\n    import torch"),
        (eager_torch, "cli/train.py", "if TYPE_CHECKING:\n    import torch"),
        (distribution_in_models, "strategies/all_reduce.py", "import torch.distributed"),
    ],
)
def test_an_import_at_home_is_fine(rule: Rule, name: str, source: str) -> None:
    assert not list(rule(SourceFile(name, source)))
