"""What is to become of rows that cannot be read."""

from typing import Literal, get_args

from flambeau.config.settings import nearest
from flambeau.errors import ConfigError

OnBadRow = Literal["error", "skip"]

#: What to do about one, for messages.
WAY_OUT = (
    "to leave out bad rows and count them: options={'on_bad_row': 'skip'} of the data; on the "
    "command line train.options.on_bad_row=skip, or --option on_bad_row=skip of predict"
)


def skips(on_bad_row: OnBadRow) -> bool:
    """Whether they are left out; raises `ConfigError` for any other word."""
    if on_bad_row not in get_args(OnBadRow):
        hint = nearest(str(on_bad_row), get_args(OnBadRow))
        raise ConfigError(f"on_bad_row={on_bad_row!r}: {hint}")
    return on_bad_row == "skip"
