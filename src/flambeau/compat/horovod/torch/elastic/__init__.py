"""`horovod.torch.elastic`: training that survives the loss of a rank."""

from flambeau.compat.horovod.elastic import ObjectState, State, TorchState, run
from flambeau.compat.horovod.elastic_sampler import ElasticSampler

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
