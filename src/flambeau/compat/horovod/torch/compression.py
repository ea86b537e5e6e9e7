"""`horovod.torch.compression`."""

from flambeau.compat.horovod.compression import (
    Compression,
    Compressor,
    FP16Compressor,
    NoneCompressor,
)

__all__ = [
    "Compression",
    "Compressor",
    "FP16Compressor",
    "NoneCompressor",
]
