"""Wrapper of saved pipelines."""

from typing import final

from pyspark.ml import Pipeline, PipelineModel


@final
class PysparkPipelineWrapper:
    """Wrapper for existing scripts; stages are saved and loaded directly, without wrapping."""

    @staticmethod
    def unwrap(pipeline: Pipeline | PipelineModel) -> Pipeline | PipelineModel:
        """Return the pipeline itself: there is nothing to unwrap."""
        if not isinstance(pipeline, Pipeline | PipelineModel):
            raise TypeError(f"unwrap takes a Pipeline or PipelineModel, not {pipeline!r}")
        return pipeline
