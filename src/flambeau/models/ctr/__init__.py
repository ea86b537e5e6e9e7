"""Recommender models: ids and numbers in, logits out.

Models over fields share one interface: `Model(fields=26, dense=13, embedding_dim=16, ...)`, and
`forward(ids, dense)` returns logits [rows] for `loss="bce"`, their default. `dense=0` is for rows
without numbers. `table=` are further settings of the tables, by name.
"""

from collections.abc import Callable

from torch import nn

from flambeau.models.ctr.afm import AFM
from flambeau.models.ctr.autoint import AutoInt
from flambeau.models.ctr.dcn import DCN
from flambeau.models.ctr.dcnv2 import DCNv2
from flambeau.models.ctr.deepfm import DeepFM
from flambeau.models.ctr.dlrm import DLRM
from flambeau.models.ctr.ffm import FFM
from flambeau.models.ctr.final_mlp import FinalMLP
from flambeau.models.ctr.fm import FM
from flambeau.models.ctr.layers.field_attention import FieldAttention
from flambeau.models.ctr.lr import LR
from flambeau.models.ctr.pnn import PNN
from flambeau.models.ctr.wide_and_deep import WideAndDeep
from flambeau.models.ctr.xdeepfm import XDeepFM

#: Models over fields, by name.
FIELD_MODELS: dict[str, Callable[..., nn.Module]] = {
    "lr": LR,
    "fm": FM,
    "ffm": FFM,
    "wide_and_deep": WideAndDeep,
    "deepfm": DeepFM,
    "dcn": DCN,
    "dcnv2": DCNv2,
    "xdeepfm": XDeepFM,
    "pnn": PNN,
    "afm": AFM,
    "autoint": AutoInt,
    "dlrm": DLRM,
    "final_mlp": FinalMLP,
    "field_attention": FieldAttention,
}

__all__ = [
    "AFM",
    "DCN",
    "DLRM",
    "FFM",
    "FIELD_MODELS",
    "FM",
    "LR",
    "PNN",
    "AutoInt",
    "DCNv2",
    "DeepFM",
    "FieldAttention",
    "FinalMLP",
    "WideAndDeep",
    "XDeepFM",
]
