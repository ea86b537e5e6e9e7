"""What becomes of rows that fill no batch."""

from typing import Literal

#: Whether rows that fill no batch are left out; "when_possible": if there are others.
DropLast = bool | Literal["when_possible"]


def drops(drop_last: DropLast, rows: int, batch_size: int) -> bool:
    """Whether those of `rows` that fill no batch are left out."""
    return rows >= batch_size if drop_last == "when_possible" else drop_last
