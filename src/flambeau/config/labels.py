"""Labels of two classes, in the forms that data has them."""

from collections.abc import Mapping

#: What to make of labels that are not 0 and 1, by the label that no other form has.
BINARY_FORMS = {-1.0: {-1.0: 0.0, 1.0: 1.0}, 2.0: {1.0: 0.0, 2.0: 1.0}}


def shown_map(mapping: Mapping[float, float]) -> str:
    """A map of labels as a user writes it."""
    pairs = ", ".join(f"{old:g}: {new:g}" for old, new in mapping.items())
    return f"label_map={{{pairs}}}"


def map_advice(label: float) -> str:
    """How to map labels, one of which is `label`, to those that are needed."""
    form = BINARY_FORMS.get(label)
    return f"map others with {'label_map={label: number}' if form is None else shown_map(form)}"
