"""`horovod.common.elastic`."""

from flambeau.compat.horovod.elastic.states import ObjectState, State

__all__ = ["ObjectState", "State"]
