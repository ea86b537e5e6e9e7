"""Errors of Horovod's API."""


class HorovodInternalError(RuntimeError):
    """A collective operation failed: requests differ between ranks, or a rank is lost."""


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818 (Horovod's name)
    """The hosts of an elastic job have changed."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """Part of Horovod's API; never raised, because nothing is compiled."""
