"""Check that a model's sizes of fields belong to the columns that it is given."""

from torch import nn

from flambeau.config.job import Binding
from flambeau.embeddings.small_fields import SmallFields
from flambeau.errors import ModelError


def check_field_names(model: nn.Module, binding: Binding) -> None:
    """Raise `ModelError` if the model's `sizes=` are for other columns, or in another order."""
    columns = binding.inputs.get("ids") if isinstance(binding.inputs, dict) else None
    given = (columns,) if isinstance(columns, str) else columns
    for module in model.modules():
        small = getattr(module, "small", None)
        named = small.columns if isinstance(small, SmallFields) else None
        if given is not None and named is not None and named != given:
            raise ModelError(
                f"sizes= of the model is of the columns {', '.join(named)}, in this order, and its "
                f"ids are {', '.join(given)}: give sizes={{name: pipeline.sizes_[name] for name in "
                "columns}, with the columns in the order of inputs="
            )
