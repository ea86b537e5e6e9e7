"""`horovod.torch.mpi_ops`: the operations, and all other names that scripts import from it."""

from flambeau.compat import horovod
from flambeau.compat.horovod import *  # noqa: F403 - all of its names, as in Horovod

__all__ = horovod.__all__
