"""Pipelines that were saved."""

from typing import final

from pyspark.ml import Pipeline, PipelineModel


@final
class PysparkPipelineWrapper:
    """Kept for scripts that use it: stages are saved and loaded as what they are."""

    @staticmethod
    def unwrap(pipeline: Pipeline | PipelineModel) -> Pipeline | PipelineModel:
        """The pipeline itself: there is nothing to unwrap."""
        if not isinstance(pipeline, Pipeline | PipelineModel):
            raise TypeError(f"unwrap takes a Pipeline or PipelineModel, not {pipeline!r}")
        return pipeline
