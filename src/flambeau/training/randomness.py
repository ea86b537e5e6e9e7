"""The random number generators of a worker: seeded, saved and restored as bytes."""

import random
from typing import Any

import msgspec
import numpy as np
import torch


class _Generators(msgspec.Struct):
    torch: bytes
    cuda: bytes | None
    python: tuple[int, tuple[int, ...], float | None]
    numpy: tuple[str, bytes, int, int, float]


def seed_all(*key: int) -> None:
    """Seed torch, numpy and random from a key such as (seed, rank)."""
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint32)[0])
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def save() -> bytes:
    """Return the state of all generators of this process."""
    cuda = torch.cuda.get_rng_state().numpy().tobytes() if torch.cuda.is_available() else None
    legacy: Any = np.random.get_state(legacy=True)
    name, keys, position, has_gauss, gauss = legacy
    version, internal, gauss_next = random.getstate()
    return msgspec.msgpack.encode(
        _Generators(
            torch=torch.get_rng_state().numpy().tobytes(),
            cuda=cuda,
            python=(version, internal, gauss_next),
            numpy=(str(name), np.asarray(keys).tobytes(), position, has_gauss, gauss),
        )
    )


def restore(state: bytes) -> None:
    """Restore all generators to the state that `save` returned."""
    saved = msgspec.msgpack.decode(state, type=_Generators)
    torch.set_rng_state(_bytes_tensor(saved.torch))
    if saved.cuda is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(_bytes_tensor(saved.cuda))
    name, keys, position, has_gauss, gauss = saved.numpy
    words: Any = np.frombuffer(keys, dtype=np.uint32)
    np.random.set_state((name, words, position, has_gauss, gauss))
    random.setstate(saved.python)


def _bytes_tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
