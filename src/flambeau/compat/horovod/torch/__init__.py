"""`horovod.torch`: what scripts import as hvd."""

from flambeau.compat import horovod
from flambeau.compat.horovod import *  # noqa: F403 - all of its names, as in Horovod
from flambeau.compat.horovod.torch import elastic

__all__ = ["elastic"]
__all__ += horovod.__all__
