"""Imports go down only, and packages on one level do not know each other."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from source_tree import SourceFile, imports, source_files

LAYERS = (
    ("errors", "version"),
    ("config",),
    ("observe", "checkpoint", "messaging", "kernels"),
    ("coordination", "tables", "reports"),
    ("data",),
    ("embeddings",),
    ("parameter_server", "clusters"),
    ("features",),
    ("models", "strategies", "inference"),
    ("training",),
    ("runs",),
    ("roles",),
    ("driver",),
    ("spark",),
    ("compat",),
    ("cli",),
)
LEVELS = {package: level for level, packages in enumerate(LAYERS) for package in packages}
ENTRANCES = ("__init__.py", "__main__.py")
PICTURE = Path(__file__).parents[2] / "docs" / "architecture" / "layers.svg"


def upward_imports(file: SourceFile) -> Iterator[str]:
    """Imports of a package that is not below; those in functions and for types count too."""
    if file.package not in LEVELS:
        yield file.at(1, f"'{file.package}' has no layer; give it one in {Path(__file__).name}")
        return
    for item in imports(file):
        if item.is_from("flambeau") and not _may_import(file.package, item.module):
            yield file.at(item.line, f"{file.package} may not import {item.module}")


def _may_import(package: str, module: str) -> bool:
    target = module.removeprefix("flambeau").lstrip(".").split(".")[0]
    if target not in LEVELS:  # the public names, which stand on everything up to the driver
        return LEVELS[package] > LEVELS["driver"]
    return target == package or LEVELS[target] < LEVELS[package]


def eager_imports(file: SourceFile) -> Iterator[str]:
    """Imports of the package's own parts that happen as soon as the file is imported."""
    for item in imports(file):
        if item.on_import and item.is_from("flambeau") and not item.is_from("flambeau.version"):
            yield file.at(item.line, f"imports {item.module} eagerly; make it lazy (PEP 562)")


def test_imports_go_down() -> None:
    files = [file for file in source_files() if file.name not in ENTRANCES]
    found = [violation for file in files for violation in upward_imports(file)]
    assert not found, "\n".join(found)


def test_the_entrance_imports_nothing_eagerly() -> None:
    (entrance,) = (file for file in source_files() if file.name == "__init__.py")
    found = list(eager_imports(entrance))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", LEVELS)
def test_the_picture_shows_every_package(package: str) -> None:
    assert f">{package}<" in PICTURE.read_text(encoding="utf-8"), f"{PICTURE} lacks {package}"


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("config/job.py", "from flambeau.data.batch import Batch"),
        ("config/job.py", "import flambeau.data"),
        ("config/job.py", "from flambeau import data"),
        ("config/job.py", "from ..data import batch"),
        ("config/job.py", "from .. import data"),
        ("config/job.py", "import importlib\nimportlib.import_module('flambeau.data')"),
        ("config/job.py", "def late():\n    from flambeau.data import Batch"),
        ("config/job.py", "if TYPE_CHECKING:\n    from flambeau.data import Batch"),
        ("observe/event.py", "from flambeau.messaging import frames"),
        ("errors.py", "from flambeau.version import __version__"),
        ("training/loop.py", "from flambeau import fit"),
        ("training/loop.py", "import flambeau"),
        ("drawer/odds.py", ""),
    ],
)
def test_an_upward_import_is_found(name: str, source: str) -> None:
    assert len(list(upward_imports(SourceFile(name, source)))) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("data/loader.py", "from flambeau.config import Loading"),
        ("data/loader.py", "from flambeau.data.batch import Batch"),
        ("data/sources/text/csv.py", "from ..batch import Batch"),
        ("data/loader.py", "import torch"),
        ("cli/train.py", "import flambeau as fb"),
    ],
)
def test_a_downward_import_is_fine(name: str, source: str) -> None:
    assert not list(upward_imports(SourceFile(name, source)))


def test_a_violation_names_file_and_line() -> None:
    file = SourceFile("config/job.py", "\n\nfrom flambeau.data import Batch")
    assert next(upward_imports(file)).startswith("src/flambeau/config/job.py:3: ")


def test_an_eager_import_is_found_and_a_lazy_one_is_fine() -> None:
    eager = SourceFile("__init__.py", "from flambeau.config import Local")
    lazy = SourceFile("__init__.py", "def __getattr__(name):\n    from flambeau import config")
    assert len(list(eager_imports(eager))) == 1
    assert not list(eager_imports(lazy))
