"""`horovod.common.elastic`."""

from flambeau.compat.horovod.elastic import ObjectState, State

__all__ = ["ObjectState", "State"]
