"""Job files: jobs in YAML, with keys named after the arguments of `fit`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pydantic
from pydantic import Field, field_validator

from flambeau.config.choices import ClusterChoice, InitFrom, StrategyChoice
from flambeau.config.clusters import ClusterSettings, Local
from flambeau.config.code import CodeRef
from flambeau.config.job import Binding, JobSettings
from flambeau.config.model_names import FIELD_NAMES, MODEL_NAMES
from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.options import (
    Checkpoints,
    Compute,
    EarlyStopping,
    Evaluation,
    Images,
    Loading,
    Observe,
    Recovery,
)
from flambeau.config.overrides import COMMAND_LINE, override
from flambeau.config.schedule import Schedule
from flambeau.config.settings import mistakes, nearest
from flambeau.config.shorthands import (
    Code,
    Data,
    LearningRate,
    Loss,
    Optimizer,
    TableOptimizer,
    is_code,
)
from flambeau.config.strategies import AllReduce
from flambeau.config.yaml_text import read_yaml
from flambeau.errors import ConfigError


class JobFile(Binding):
    """Content of a job file; `settings()` returns the settings of the job that it describes.

    `model` is a built-in model or `module:name`, built with `args`. `features` is a features file,
    or the folder of a saved pipeline. The columns (`inputs`, `label`, ...) are those of `Binding`.
    """

    model: str
    args: dict[str, Any] = {}
    train: Data
    valid: Data | None = None
    features: str | None = None
    loss: Loss = None
    step: Code | None = None
    optimizer: Optimizer = OptimizerSpec()
    table_optimizer: TableOptimizer = None
    schedule: LearningRate = Schedule()
    metrics: tuple[str, ...] = ()
    batch_size: int = Field(default=128, ge=1)
    epochs: int = Field(default=1, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)
    strategy: StrategyChoice = StrategyChoice(all_reduce=AllReduce())
    cluster: ClusterChoice = ClusterChoice(local=Local())
    compute: Compute = Compute()
    loading: Loading = Loading()
    images: Images | None = None
    checkpoints: Checkpoints = Checkpoints()
    evaluation: Evaluation = Evaluation()
    evaluator: bool = False
    early_stopping: EarlyStopping | None = None
    observe: Observe = Observe()
    recovery: Recovery = Recovery()
    callbacks: tuple[Code, ...] = ()
    run_dir: str
    resume: Literal["auto", "always", "never"] | bool = "auto"
    init_from: InitFrom | None = None

    @field_validator("model")
    @classmethod
    def _known(cls, model: str) -> str:
        if not is_code(model) and model not in MODEL_NAMES:
            raise ValueError(f"unknown model; {nearest(model, MODEL_NAMES)} (or write module:name)")
        return model

    def settings(self, where: str = "", cluster: ClusterSettings | None = None) -> JobSettings:
        """Return the job's settings; errors about conflicting settings start with `where`.

        `cluster` is the job's own cluster, already resolved.
        """
        # In a run's settings, `features` is a digest; in a job file, it is a path.
        same = (JobSettings.model_fields.keys() & JobFile.model_fields.keys()) - {"features"}
        values = {name: getattr(self, name) for name in same}
        binding = {name: getattr(self, name) for name in Binding.model_fields}
        values |= {
            "model": self._model_ref(),
            "loss": self._loss(),
            "binding": Binding(**binding),
            "strategy": self.strategy.chosen,
            "cluster": cluster or self.cluster.chosen.resolved(),
        }
        return JobSettings.parse(values, where)

    def _loss(self) -> Any:
        """Return the loss; built-in models over fields have a default, their `default_loss`."""
        named = self.loss is not None or self.step is not None
        return self.loss if named or self.model not in FIELD_NAMES else "bce"

    def _model_ref(self) -> CodeRef:
        if is_code(self.model):
            return CodeRef(path=self.model, args=self.args, call=bool(self.args))
        # Built-in models are built by name on the worker, so the driver need not load torch.
        args = {"name": self.model, **self.args}
        return CodeRef(path="flambeau.models:build", args=args, call=True)


def load_job_file(path: str | Path, overrides: Sequence[str] = ()) -> JobFile:
    """Load a job file with `key=value` overrides; report all errors at once, one per line.

    Without `run_dir`, the run directory is `runs/` and the name of the file.
    """
    path = Path(path)
    values = read_yaml(path)
    overridden = override(values, overrides)
    # A null key counts as not set, even if the setting does not accept null.
    for key in [key for key in JobFile.model_fields if values.get(key, "") is None]:
        del values[key]
    values.setdefault("run_dir", str(Path("runs") / path.stem))
    try:
        job = JobFile.model_validate(values)
    except pydantic.ValidationError as error:
        lines = [
            f"{_origin(key, overridden, path)}: {line}" for key, line in mistakes(error, JobFile)
        ]
        raise ConfigError("\n".join(lines)) from None
    job.settings(str(path))
    return job


def _origin(key: str, overridden: list[str], path: Path) -> str:
    """Return where the value of a key was given: on the command line or in the file."""
    on_command_line = any(key == name or key.startswith(f"{name}.") for name in overridden)
    return COMMAND_LINE if on_command_line else str(path)
