"""`flambeau angel make`, which makes model files from the arguments of Angel's own scripts."""

import argparse
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from flambeau.compat.angel import torchscript
from flambeau.compat.angel.algorithms.attention_fm import AttentionFM
from flambeau.compat.angel.algorithms.attention_net import AttentionNet
from flambeau.compat.angel.algorithms.base import ENCODINGS
from flambeau.compat.angel.algorithms.dcn import DeepAndCross
from flambeau.compat.angel.algorithms.deepandwide import DeepAndWide
from flambeau.compat.angel.algorithms.deepfm import DeepFM
from flambeau.compat.angel.algorithms.fm import FactorizationMachine
from flambeau.compat.angel.algorithms.lr import LogisticRegression
from flambeau.compat.angel.algorithms.pnn import ProductNetwork
from flambeau.compat.angel.algorithms.xdeepfm import XDeepFM
from flambeau.compat.angel.contract import REPLACED
from flambeau.config.settings import nearest
from flambeau.errors import ConfigError

ALGORITHMS: dict[str, Callable[..., torch.nn.Module]] = {
    "lr": LogisticRegression,
    "fm": FactorizationMachine,
    "deepfm": DeepFM,
    "deepandwide": DeepAndWide,
    "dcn": DeepAndCross,
    "pnn": ProductNetwork,
    "xdeepfm": XDeepFM,
    "attention_fm": AttentionFM,
    "attention_net": AttentionNet,
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "input_dim": {"help": "ids are 0 to this number - 1"},
    "n_fields": {"help": "ids in each row"},
    "embedding_dim": {"help": "numbers in the vector of an id"},
    "fc_dims": {"nargs": "+", "help": "widths of the dense layers; the last is 1"},
    "cross_depth": {"help": "crosses, one after the other"},
    "cin_dims": {"nargs": "+", "help": "maps of each interaction layer"},
    "attention_dim": {"help": "width of the attention"},
    "heads": {"help": "attention heads"},
    "encode": {
        "type": str,
        "choices": ENCODINGS,
        "help": "onehot: one id for each field in every row; multihot: any number (libffm data)",
    },
}


def make(arguments: Sequence[str]) -> Path:
    """Write the model file that the arguments after `make` describe; return its path."""
    given = _parse(list(arguments))
    seed, out = given.pop("seed"), Path(given.pop("output"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = ALGORITHMS[given.pop("algorithm")](**given)
    torchscript.write(torchscript.compiled(module), out)
    return out


def _parse(arguments: list[str]) -> dict[str, Any]:
    name = arguments[0] if arguments else ""
    if name in ("mmoe", "esmm"):
        raise ConfigError(f"make {name}: {REPLACED}")
    if name not in ALGORITHMS:
        raise ConfigError(f"make: unknown algorithm '{name}'; {nearest(name, ALGORITHMS)}")
    parser = _Parser(prog=f"flambeau angel make {name}", allow_abbrev=False)
    for argument in inspect.signature(ALGORITHMS[name]).parameters.values():
        needed = argument.default is argument.empty
        parser.add_argument(
            f"--{argument.name}",
            required=needed,
            default=None if needed else argument.default,
            **{"type": _positive, **ARGUMENTS[argument.name]},
        )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", default=f"{name}.pt", help="the file to write")
    found, unknown = parser.parse_known_args(arguments[1:])
    _refuse(parser, unknown)
    return {"algorithm": name, **vars(found)}


def _refuse(parser: argparse.ArgumentParser, unknown: list[str]) -> None:
    if unknown:
        known = [option for action in parser._actions for option in action.option_strings]
        raise ConfigError(
            f"{parser.prog}: unknown argument {unknown[0]}; {nearest(unknown[0], known)}"
        )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


class _Parser(argparse.ArgumentParser):
    """Parser that raises errors instead of ending the process."""

    def error(self, message: str) -> Any:
        raise ConfigError(f"{self.prog}: {message}")
