"""Networks that are trained already, in Spark."""

from pyspark.ml import PipelineModel
from torch import nn

from flambeau.compat.sparktorch.torch_distributed import SparkTorchModel
from flambeau.compat.sparktorch.util import to_text


def convert_to_serialized_torch(network: nn.Module) -> str:
    """A network as a text, as `SparkTorchModel(modStr=...)` takes it."""
    return to_text(network)


def create_spark_torch_model(
    network: nn.Module,
    inputCol: str = "features",  # noqa: N803 - SparkTorch's names
    predictionCol: str = "predicted",  # noqa: N803
    useVectorOut: bool = False,  # noqa: N803
) -> SparkTorchModel:
    """A trained network as a stage of a pipeline."""
    return SparkTorchModel(
        inputCol=inputCol,
        predictionCol=predictionCol,
        modStr=convert_to_serialized_torch(network),
        useVectorOut=useVectorOut,
    )


def attach_pytorch_model_to_pipeline(
    network: nn.Module,
    pipeline_model: PipelineModel,
    inputCol: str = "features",  # noqa: N803
    predictionCol: str = "predicted",  # noqa: N803
    useVectorOut: bool = False,  # noqa: N803
) -> PipelineModel:
    """A fitted pipeline with a trained network as one more stage."""
    model = create_spark_torch_model(network, inputCol, predictionCol, useVectorOut)
    return PipelineModel(stages=[pipeline_model, model])
