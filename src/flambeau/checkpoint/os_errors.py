"""Errors of the operating system that say something of the machine, whatever the file was."""

import errno

_REASONS = {
    errno.ENOSPC: "no space is left on the disk; free some, or {elsewhere}",
    errno.EDQUOT: "the disk quota is used up; free some space, or {elsewhere}",
    errno.EROFS: "the file system is read-only; {elsewhere}",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n)",
    errno.ENOMEM: "out of memory; use fewer workers, a smaller batch_size or a larger machine",
}


def machine_reason(number: int | None, elsewhere: str = "use another disk") -> str | None:
    """Return what happened and what to change; None if the error says nothing of the machine.

    `elsewhere` is how to choose another place for the file.
    """
    reason = _REASONS.get(number or 0)
    return None if reason is None else reason.format(elsewhere=elsewhere)
