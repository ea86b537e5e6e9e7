"""Faults of a row of text: the numbers that kernels return, and their messages."""

from dataclasses import dataclass
from typing import Literal, get_args

from flambeau.config.settings import nearest
from flambeau.errors import ConfigError

FINE = 0
NO_NUMBER = 1
TOO_LARGE = 2
NO_LABEL = 3
LABELS_JOINED = 4
LABELS_DIFFER = 5
NO_COLON = 6
EXTRA_COLON = 7
NEGATIVE_ID = 8
BELOW_FIRST_ID = 9
LONG_ID = 10
QUERY = 11
COLUMNS_DIFFER = 12
NOT_UTF8 = 13

MESSAGES = {
    NO_NUMBER: "this is not a number",
    TOO_LARGE: "this number is too large for a float32",
    NO_LABEL: "the label is not a number",
    LABELS_JOINED: "several labels are joined with '#': name them with the option labels=[...]",
    LABELS_DIFFER: "there are not as many labels, joined with '#', as the option labels names",
    NO_COLON: "a colon is missing",
    EXTRA_COLON: "there is one colon too many",
    NEGATIVE_ID: "an id is negative",
    BELOW_FIRST_ID: "an id is below first_id (if ids start at 0, give the option first_id=0)",
    LONG_ID: "an id is larger than 2**63 - 1",
    QUERY: "groups (qid:) are not read: remove them, or convert the file to Parquet",
    COLUMNS_DIFFER: "this row does not have the right number of columns",
    NOT_UTF8: "this text is not UTF-8",
}
_SHOWN = 60


@dataclass(frozen=True)
class Fault:
    """A fault (a number above) at `where`, in a line from `start` to `stop` of a block."""

    what: int
    where: int
    start: int
    stop: int


def shortened(text: bytes) -> str:
    """Return a text for a message: at most 60 characters, for any bytes."""
    shown = text.decode(errors="backslashreplace")
    return repr(shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "...")


OnBadRow = Literal["error", "skip"]

#: Advice about a bad row, for messages.
WAY_OUT = (
    "to leave out bad rows and count them: options={'on_bad_row': 'skip'} of the data; on the "
    "command line train.options.on_bad_row=skip, or --option on_bad_row=skip of predict"
)


def skips(on_bad_row: OnBadRow) -> bool:
    """Return whether bad rows are skipped; raise `ConfigError` for an unknown value."""
    if on_bad_row not in get_args(OnBadRow):
        hint = nearest(str(on_bad_row), get_args(OnBadRow))
        raise ConfigError(f"on_bad_row={on_bad_row!r}: {hint}")
    return on_bad_row == "skip"
