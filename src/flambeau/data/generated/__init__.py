"""Data drawn from known probabilities, so that the best that any model can reach is known."""

from flambeau.data.generated.settings import ClickLog
from flambeau.data.generated.truth import Score, Truth
from flambeau.data.generated.writing import generate_clicks

__all__ = ["ClickLog", "Score", "Truth", "generate_clicks"]
