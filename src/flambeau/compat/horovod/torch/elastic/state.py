"""`horovod.torch.elastic.state`."""

from flambeau.compat.horovod.elastic import TorchState

__all__ = ["TorchState"]
