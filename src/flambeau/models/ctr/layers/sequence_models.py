"""Models for histories, several tasks and retrieval, by name."""

from collections.abc import Callable

from torch import nn

from flambeau.models.ctr.din import DIN
from flambeau.models.ctr.esmm import ESMM
from flambeau.models.ctr.mmoe import MMoE
from flambeau.models.ctr.sasrec import SASRec
from flambeau.models.ctr.two_tower import TwoTower

SEQUENCE_MODELS: dict[str, Callable[..., nn.Module]] = {
    "din": DIN,
    "esmm": ESMM,
    "mmoe": MMoE,
    "sasrec": SASRec,
    "two_tower": TwoTower,
}

__all__ = ["DIN", "ESMM", "SEQUENCE_MODELS", "MMoE", "SASRec", "TwoTower"]
