"""`horovod.torch.elastic`: training that survives the loss of a rank."""

from flambeau.compat.horovod.elastic import ElasticSampler, ObjectState, State, TorchState, run

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
