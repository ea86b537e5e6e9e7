"""Training that survives the loss of a rank."""

from flambeau.compat.horovod.elastic.sampler import ElasticSampler
from flambeau.compat.horovod.elastic.states import ObjectState, State, TorchState, run

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
