"""SparkTorch's interface, on Flambeau: its modules, names, parameters and defaults."""

from flambeau.errors import MissingDependencyError

try:
    import pyspark  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingDependencyError(
        "flambeau.compat.sparktorch needs pyspark: pip install 'flambeau[spark]'"
    ) from error

from flambeau.compat.sparktorch.inference import create_spark_torch_model
from flambeau.compat.sparktorch.pipeline_util import PysparkPipelineWrapper
from flambeau.compat.sparktorch.torch_distributed import SparkTorch
from flambeau.compat.sparktorch.util import serialize_torch_obj, serialize_torch_obj_lazy

__all__ = [
    "PysparkPipelineWrapper",
    "SparkTorch",
    "create_spark_torch_model",
    "serialize_torch_obj",
    "serialize_torch_obj_lazy",
]
