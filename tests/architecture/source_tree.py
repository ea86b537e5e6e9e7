"""The package's source files, parsed, and what they import."""

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
PACKAGE = SRC / "flambeau"

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SourceFile:
    """One file; `name` is its path inside the package, such as `data/batch.py`."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.name)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def package(self) -> str:
        """`data` for `data/batch.py`, and `errors` for `errors.py`."""
        return self.name.split("/")[0].removesuffix(".py")

    def at(self, line: int, message: str) -> str:
        """A message that an editor can jump to."""
        return f"src/flambeau/{self.name}:{line}: {message}"


#: A rule gives one message for each place that breaks it.
Rule = Callable[[SourceFile], Iterable[str]]


@dataclass(frozen=True)
class Import:
    """One imported name in full, `flambeau.data.batch.Batch`.

    `on_import` is False inside functions and under `if TYPE_CHECKING`.
    """

    module: str
    line: int
    on_import: bool

    def is_from(self, library: str) -> bool:
        """Whether it is `library` or something inside it."""
        return self.module == library or self.module.startswith(f"{library}.")


@cache
def source_files() -> list[SourceFile]:
    """Every file of the package."""
    return [
        SourceFile(path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


def line_of(node: ast.AST) -> int:
    """Where a statement or expression starts."""
    return int(getattr(node, "lineno", 1))


@cache
def imports(file: SourceFile) -> list[Import]:
    """All imports of a file, wherever they stand."""
    return list(_imports(file, file.tree, on_import=True))


def _imports(file: SourceFile, node: ast.AST, on_import: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        for module in _imported(file, child):
            yield Import(module, line_of(child), on_import)
        yield from _imports(file, child, on_import and not _runs_later(child))


def _imported(file: SourceFile, node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        origin = _origin(file, node)
        return [origin if alias.name == "*" else f"{origin}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in _DYNAMIC_IMPORTS:
        return [text for item in node.args[:1] for text in _texts(item)]
    return []


_DYNAMIC_IMPORTS = {"importlib.import_module", "import_module", "__import__"}


def _texts(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    return []


def _origin(file: SourceFile, node: ast.ImportFrom) -> str:
    """The module that a `from ... import` names, with leading dots resolved."""
    if node.level == 0:
        return node.module or ""
    folders = ["flambeau", *file.name.split("/")[:-1]]
    parent = folders[: len(folders) - node.level + 1]
    return ".".join([*parent, *filter(None, [node.module])])


def _runs_later(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    return isinstance(node, FunctionNode | ast.Lambda)
