"""`horovod.torch.elastic.sampler`."""

from flambeau.compat.horovod.elastic.sampler import ElasticSampler

__all__ = ["ElasticSampler"]
