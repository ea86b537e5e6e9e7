"""`horovod.torch`: the module that scripts import as hvd."""

from flambeau.compat import horovod
from flambeau.compat.horovod import *  # noqa: F403 - all of its names, as in Horovod

__all__ = horovod.__all__
