"""Habits that the code base keeps, and those it avoids."""

import ast
from collections.abc import Iterator

import pytest
from source_tree import PACKAGE, FunctionNode, Rule, SourceFile, line_of, source_files

MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 60
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc"}
NAMED_BY_OTHERS = {
    "compat/sparktorch/util.py",
    "compat/horovod/common/__init__.py",
    "compat/horovod/common/elastic.py",
    "compat/horovod/common/exceptions.py",
    "compat/horovod/common/process_sets.py",
    "compat/horovod/common/util.py",
}
#: Horovod's settings are variables.
SETTINGS_OF_OTHERS = {"compat/horovod/engine/environment.py"}
READ_THE_ENVIRONMENT = {"clusters", "roles", "driver", "cli"}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb"}


def prints(file: SourceFile) -> Iterator[str]:
    for node in file.nodes:
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id == "print" and file.package != "cli":
            yield file.at(line_of(node), "only the command line prints; emit an event instead")


def environment_settings(file: SourceFile) -> Iterator[str]:
    if file.package in READ_THE_ENVIRONMENT or file.name in SETTINGS_OF_OTHERS:
        return
    for node in file.nodes:
        if _touches_environment(node):
            yield file.at(line_of(node), "take a setting, not an environment variable")


def _touches_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return ast.unparse(node.value) == "os" and node.attr in ENVIRONMENT
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(alias.name in ENVIRONMENT for alias in node.names)
    return False


def bare_excepts(file: SourceFile) -> Iterator[str]:
    for node in file.nodes:
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield file.at(node.lineno, "name the exceptions that are expected here")


def swallowed_errors(file: SourceFile) -> Iterator[str]:
    for node in file.nodes:
        if isinstance(node, ast.ExceptHandler) and all(map(_does_nothing, node.body)):
            yield file.at(node.lineno, "an exception is caught and dropped")


def _does_nothing(statement: ast.stmt) -> bool:
    bare_value = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return bare_value or isinstance(statement, ast.Pass)


def long_files(file: SourceFile) -> Iterator[str]:
    lines = len(file.text.splitlines())
    if lines > MOST_LINES_OF_A_FILE:
        yield file.at(lines, f"{lines} lines; split it by idea below {MOST_LINES_OF_A_FILE}")


def long_functions(file: SourceFile) -> Iterator[str]:
    for node in file.nodes:
        if isinstance(node, FunctionNode):
            # What is documented is not long: arguments and docstring do not count.
            first = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0]
            lines = (node.end_lineno or node.lineno) - first.lineno + 1
            if lines > MOST_LINES_OF_A_FUNCTION:
                yield file.at(node.lineno, f"{node.name} has {lines} lines; split it")


def drawers(file: SourceFile) -> Iterator[str]:
    if file.name in NAMED_BY_OTHERS:
        return
    for part in file.name.removesuffix(".py").split("/"):
        if part.strip("_") in DRAWERS:
            yield file.at(1, f"'{part}' does not say what is inside; name the idea")


def silent_packages(file: SourceFile) -> Iterator[str]:
    if file.name.endswith("__init__.py") and not ast.get_docstring(file.tree):
        yield file.at(1, "say in a docstring what the package is for")


RULES = [
    prints,
    environment_settings,
    bare_excepts,
    swallowed_errors,
    long_files,
    long_functions,
    drawers,
    silent_packages,
]


@pytest.mark.parametrize("rule", RULES)
def test_habit(rule: Rule) -> None:
    found = [violation for file in source_files() for violation in rule(file)]
    assert not found, "\n".join(found)


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [str(path) for path in sorted(folders) if not (path / "__init__.py").exists()] == []


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (prints, "data/batch.py", "def f():\n    print('hi')"),
        (environment_settings, "data/batch.py", "import os\nx = os.environ['X']"),
        (environment_settings, "data/batch.py", "import os\nx = os.getenv('X')"),
        (environment_settings, "data/batch.py", "from os import environ"),
        (bare_excepts, "data/batch.py", "try:\n    f()\nexcept:\n    raise"),
        (swallowed_errors, "data/batch.py", "try:\n    f()\nexcept ValueError:\n    pass"),
        (swallowed_errors, "data/batch.py", "try:\n    f()\nexcept ValueError:\n    ..."),
        (long_files, "data/batch.py", "x = 1\n" * 401),
        (long_functions, "data/batch.py", "def f():\n" + "    x = 1\n" * 61),
        (long_functions, "data/batch.py", "class A:\n  async def f():\n" + "    x = 1\n" * 61),
        (drawers, "data/utils.py", ""),
        (drawers, "data/_helpers.py", ""),
        (drawers, "misc/thing.py", ""),
        (silent_packages, "data/__init__.py", "x = 1"),
    ],
)
def test_a_violation_is_found(rule: Rule, name: str, source: str) -> None:
    (violation,) = rule(SourceFile(name, source))
    assert violation.startswith(f"src/flambeau/{name}:")


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (prints, "cli/doctor.py", "print('hi')"),
        (prints, "observe/progress.py", "console.print('hi')"),
        (environment_settings, "clusters/local.py", "import os\nx = os.environ['X']"),
        (bare_excepts, "data/batch.py", "try:\n    f()\nexcept ValueError:\n    raise"),
        (swallowed_errors, "data/batch.py", "try:\n    f()\nexcept ValueError:\n    x = 1"),
        (long_files, "data/batch.py", "x = 1\n" * 400),
        (long_functions, "data/batch.py", "def f():\n" + "    x = 1\n" * 59),
        (drawers, "data/commonality.py", ""),
        (drawers, "compat/sparktorch/util.py", ""),
        (silent_packages, "data/__init__.py", '"""Data."""'),
        (silent_packages, "data/batch.py", "x = 1"),
    ],
)
def test_what_is_allowed_is_not_reported(rule: Rule, name: str, source: str) -> None:
    assert not list(rule(SourceFile(name, source)))
