"""`horovod.torch.elastic.sampler`."""

from flambeau.compat.horovod.elastic_sampler import ElasticSampler

__all__ = ["ElasticSampler"]
