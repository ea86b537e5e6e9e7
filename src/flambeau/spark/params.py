"""Params of `TorchEstimator` and `TorchModel`: names, defaults and descriptions."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Self

from pyspark.ml.param import Param, Params

from flambeau.config.settings import nearest
from flambeau.errors import ConfigError
from flambeau.spark import values


class Setting(Param[Any]):
    """A param with its default; it is named after its attribute."""

    def __init__(
        self, doc: str, default: Any = None, convert: Callable[[Any], Any] = values.as_it_is
    ) -> None:
        super().__init__(Params._dummy(), "unnamed", doc, functools.partial(_unless_none, convert))
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


def _unless_none(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


class SettingParams(Params):
    """Params that are given by keyword, with a getter and a setter for each."""

    def __init__(self, **given: Any) -> None:
        super().__init__()
        settings = {each.name: each for each in self.params if isinstance(each, Setting)}
        self._setDefault(**{name: each.default for name, each in settings.items()})
        self.setParams(**given)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, setting in list(vars(cls).items()):
            if isinstance(setting, Setting):
                _add_accessors(cls, name, setting.doc)

    def setParams(self, **given: Any) -> Self:  # noqa: N802 - as Spark calls it
        """Set any number of params by name."""
        for name in given:
            if not self.hasParam(name):
                known = [each.name for each in self.params]
                raise ConfigError(f"{type(self).__name__} has no {name}; {nearest(name, known)}")
        return self._set(**given)


def _add_accessors(cls: type, name: str, doc: str) -> None:
    def get(self: Params) -> Any:
        return self.getOrDefault(name)

    def put(self: Params, value: Any) -> Params:
        return self._set(**{name: value})

    suffix = name[0].upper() + name[1:]
    for prefix, method, verb in (("get", get, "Gets"), ("set", put, "Sets")):
        method.__name__ = prefix + suffix
        method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
        method.__doc__ = f"{verb} `{name}`: {doc}"
        setattr(cls, method.__name__, method)


class ModelParams(SettingParams):
    """Params of a trained model for its input and output columns."""

    featuresCol: Param[Any] = Setting(  # noqa: N815
        "the column with the features: a Vector (dense or sparse), an array, a number or an id; "
        "for the first parameter of forward()",
        "features",
        values.text,
    )
    inputCols: Param[Any] = Setting(  # noqa: N815
        "columns instead of featuresCol: a list is stacked into one tensor, {parameter: column or "
        "list} names the parameters of forward()",
        None,
        values.columns,
    )
    inputShape: Param[Any] = Setting(  # noqa: N815
        "the shape of one row's features, such as [1, 28, 28]",
        None,
        values.shape,
    )
    predictionCol: Param[Any] = Setting(  # noqa: N815
        "the column for predictions: the class, the value, or the labels that apply",
        "prediction",
        values.text,
    )
    probabilityCol: Param[Any] = Setting(  # noqa: N815
        "the column for the probabilities of all classes, a Vector; None for none",
        "probability",
        values.text,
    )
    rawPredictionCol: Param[Any] = Setting(  # noqa: N815
        "the column for the model's outputs before they are probabilities, a Vector; None for none",
        "rawPrediction",
        values.text,
    )
    loss: Param[Any] = Setting(
        "what outputs mean: 'bce', 'bce_prob', 'cross_entropy', 'nll', 'mse', 'mae', 'huber', a "
        "torch loss, f(output, batch), or {task: loss}; None: the output is the loss itself",
        None,
        values.loss,
    )


class TrainingParams(ModelParams):
    """Params of the training."""

    model: Param[Any] = Setting(
        "the network: an nn.Module, a class or function that builds one, or 'package.module:Name'"
    )
    modelParams: Param[Any] = Setting(  # noqa: N815
        "arguments for a model that is a class or function", None, values.mapping
    )
    labelCol: Param[Any] = Setting(  # noqa: N815
        "the label: a column, a list of columns, or {task: column}; None for none: then the "
        "features themselves are learnt (auto-encoder)",
        "label",
        values.columns,
    )
    weightCol: Param[Any] = Setting("the weight of each row", None, values.text)  # noqa: N815
    validationIndicatorCol: Param[Any] = Setting(  # noqa: N815
        "a boolean column: rows where it is true are for validation, not for training",
        None,
        values.text,
    )
    validationFraction: Param[Any] = Setting(  # noqa: N815
        "the share of rows, by chance, that is for validation", 0.0, values.fraction
    )
    optimizer: Param[Any] = Setting(
        "a name ('adam', 'sgd', ...), fb.optim(...), a torch optimizer class, or f(parameters)",
        "adam",
        values.optimizer,
    )
    learningRate: Param[Any] = Setting("the learning rate", None, values.positive)  # noqa: N815
    tableOptimizer: Param[Any] = Setting(  # noqa: N815
        "the optimizer of embedding tables: a name or fb.optim(...)", None, values.optimizer
    )
    epochs: Param[Any] = Setting("how often all rows are trained on", 1, values.count)
    maxSteps: Param[Any] = Setting("the largest number of steps", None, values.count)  # noqa: N815
    batchSize: Param[Any] = Setting(  # noqa: N815
        "rows of one batch of one worker", 128, values.count
    )
    numWorkers: Param[Any] = Setting("how many processes train", 1, values.count)  # noqa: N815
    strategy: Param[Any] = Setting(
        "the strategy: 'all_reduce', 'parameter_server', 'hybrid', or fb.ParameterServer(...)",
        "all_reduce",
        values.strategy,
    )
    metrics: Param[Any] = Setting(
        "metrics of the validation rows: 'accuracy', 'auc', ...", [], values.texts
    )
    earlyStoppingPatience: Param[Any] = Setting(  # noqa: N815
        "evaluations without improvement before training stops with the best weights; 0: never",
        0,
        values.whole,
    )
    earlyStoppingMetric: Param[Any] = Setting("the metric to watch", "loss", values.text)  # noqa: N815
    earlyStoppingMinDelta: Param[Any] = Setting(  # noqa: N815
        "what counts as an improvement", 0.0, values.number
    )
    seed: Param[Any] = Setting("the random seed", 0, values.whole)
    device: Param[Any] = Setting("'auto', 'cpu' or 'cuda'", "auto", values.text)
    checkpointDir: Param[Any] = Setting(  # noqa: N815
        "where runs are kept, one folder for each fit; None: in a temporary folder", None, str
    )
    initialModel: Param[Any] = Setting(  # noqa: N815
        "start from the weights and tables of a TorchModel, a saved one's path, or a run",
        None,
        values.initial,
    )
    fitParams: Param[Any] = Setting(  # noqa: N815
        "further arguments of flambeau.fit, such as {'recovery': {'max_restarts': 2}}",
        None,
        values.mapping,
    )


def is_json(value: Any) -> bool:
    """Return whether a value can be stored in Spark's metadata directly."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_json(item) for key, item in value.items())
    if isinstance(value, list):
        return all(is_json(item) for item in value)
    return value is None or isinstance(value, str | int | float | bool)
