"""Networks that are already trained, as stages of Spark pipelines."""

from pyspark.ml import PipelineModel
from torch import nn

from flambeau.compat.sparktorch.torch_distributed import SparkTorchModel
from flambeau.compat.sparktorch.util import to_text


def convert_to_serialized_torch(network: nn.Module) -> str:
    """Return a network as text, for `SparkTorchModel(modStr=...)`."""
    return to_text(network)


def create_spark_torch_model(
    network: nn.Module,
    inputCol: str = "features",  # noqa: N803 - SparkTorch's names
    predictionCol: str = "predicted",  # noqa: N803
    useVectorOut: bool = False,  # noqa: N803
) -> SparkTorchModel:
    """Return a trained network as a stage of a pipeline."""
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
    """Return a fitted pipeline with a trained network as an additional stage."""
    model = create_spark_torch_model(network, inputCol, predictionCol, useVectorOut)
    return PipelineModel(stages=[pipeline_model, model])
