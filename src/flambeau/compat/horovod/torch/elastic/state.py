"""`horovod.torch.elastic.state`."""

from flambeau.compat.horovod.elastic.states import TorchState

__all__ = ["TorchState"]
