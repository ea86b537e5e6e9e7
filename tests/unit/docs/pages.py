"""The pages of the documentation, and the blocks of code in them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guide"
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"])
#: Run by tests/processes, since it starts workers.
FIRST_MODEL = GUIDE / "first-model.md"

_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """Code of a page; `line` is the number of its first line."""

    page: Path
    line: int
    language: str
    code: str


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """The blocks in any of `languages`: `python` runs, `py` is only shown."""
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        if match["language"] in languages:
            line = text.count("\n", 0, match.start("code")) + 1
            yield Block(page, line, match["language"], match["code"])


def name_of(page: Path) -> str:
    """A page's path in the repository, for messages."""
    return str(page.relative_to(ROOT))
