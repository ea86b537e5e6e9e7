"""The `key:value` arguments of Angel's jobs, of both generations."""

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import AliasGenerator, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from flambeau.config.settings import Settings, nearest
from flambeau.errors import ConfigError

#: Arguments of the older generation, and other names for the same argument.
OTHER_NAMES = {
    "input": "trainInput",
    "partitionNum": "numDataPartitions",
    "modulePath": "torchOutputModelPath",
    "dataType": "dataFormat",
    "format": "dataFormat",
}
#: Arguments about Spark and Angel's servers that have no effect here.
WITHOUT_MEANING = (
    *("mode", "numPartitionsFactor", "psNumPartitionFactor"),
    *("rowType", "shuffleInterval", "storageLevel"),
)
#: Angel's names of metrics, and Flambeau's.
EVALS = {
    "auc": "auc",
    "acc": "accuracy",
    "binary_acc": "accuracy",
    "precision": "precision",
    "recall": "recall",
    "f1": "f1",
    "rmse": "rmse",
}


class AngelJob(Settings):
    """A job with Angel's arguments; an empty path is one that was not given.

    `cluster`, `workers`, `servers`, `label_map`, `run_dir` and `seed` are Flambeau's additions.
    """

    model_config = ConfigDict(
        alias_generator=AliasGenerator(alias=lambda name: to_camel(name.removesuffix("_")))
    )

    action_type: Literal["train", "predict"] = "train"
    train_input: str
    validate_input: str = ""
    data_format: Literal["", "libsvm", "libffm", "dummy"] = ""
    torch_model_path: str = "model.pt"
    torch_output_model_path: str = ""
    angel_model_input_path: str = ""
    angel_model_output_path: str = ""
    predict_output_path: str = ""
    batch_size: int = Field(default=512, ge=1)
    step_size: float = Field(default=0.01, gt=0)
    optimizer: Literal["adam", "sgd", "momentum", "adagrad"] = "adam"
    num_epoch: int = Field(default=10, ge=1)
    test_ratio: float = Field(default=0.1, ge=0, lt=1)
    decay: float = Field(default=0.001, ge=0)
    async_: bool = True
    num_data_partitions: int = Field(default=100, ge=1)
    evals: tuple[str, ...] = ("auc",)
    cluster: Literal["local", "spark"] = "local"
    workers: int = Field(default=1, ge=1)
    servers: int = Field(default=1, ge=1)
    label_map: dict[float, float] = Field(default={})
    run_dir: str = ""
    seed: int = Field(default=0, ge=0)

    @field_validator("evals", mode="before")
    @classmethod
    def _names(cls, given: Any) -> Any:
        names = [name.strip() for name in given.split(",")] if isinstance(given, str) else given
        for name in names:
            if name not in EVALS:
                raise ValueError(f"unknown eval '{name}'; {nearest(name, EVALS)}")
        return tuple(dict.fromkeys(names))

    @field_validator("label_map", mode="before")
    @classmethod
    def _pairs(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        pairs = [pair.split("=") for pair in given.split(",")]
        if any(len(pair) != 2 for pair in pairs):
            raise ValueError("write label=number with commas, such as labelMap:-1=0,1=1")
        return dict(pairs)

    @field_validator(
        *("torch_model_path", "torch_output_model_path", "predict_output_path"),
        *("angel_model_input_path", "angel_model_output_path"),
    )
    @classmethod
    def _is_local(cls, path: str) -> str:
        if "://" in path:
            raise ValueError(
                "models, tables and predictions are files of this machine; give a path"
            )
        return path

    @model_validator(mode="after")
    def _complete(self) -> "AngelJob":
        if self.action_type == "predict" and not self.predict_output_path:
            raise ValueError("actionType:predict needs predictOutputPath, where predictions go")
        return self


def parse_words(words: Iterable[str]) -> tuple[AngelJob, list[str]]:
    """Return the job, and the given arguments that have no effect here."""
    values = dict(_split(word) for word in words)
    if "modulePath" in values and "torchModelPath" not in values:
        raise ConfigError(
            f"modulePath:{values['modulePath']} is where the trained model goes; give "
            "torchModelPath, the model file to start from"
        )
    known = {str(field.alias) for field in AngelJob.model_fields.values()}
    given: dict[str, str] = {}
    for key, value in values.items():
        name = OTHER_NAMES.get(key, key)
        if name not in known and name not in WITHOUT_MEANING:
            every = {*known, *WITHOUT_MEANING, *OTHER_NAMES}
            raise ConfigError(f"unknown argument '{key}'; {nearest(key, every)}")
        if name in given:
            raise ConfigError(f"'{key}' means the same as another word ({name}); give one of them")
        given[name] = value
    idle = [name for name in given if name in WITHOUT_MEANING]
    meant = {name: value for name, value in given.items() if name in known}
    return AngelJob.parse(meant), idle


def _split(word: str) -> tuple[str, str]:
    """Return an argument's key and value, which may contain colons, as in hdfs://name:9000/path."""
    marks = [place for place in (word.find(":"), word.find("=")) if place > 0]
    if not marks:
        raise ConfigError(
            f"'{word}' is not a word of a job: write key:value, such as batchSize:512 (or begin "
            "with 'make' to make a model file)"
        )
    return word[: min(marks)], word[min(marks) + 1 :]
