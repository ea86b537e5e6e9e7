"""Data generated from known probabilities, so that the best score of any model is known."""

from flambeau.data.generated.settings import ClickLog
from flambeau.data.generated.truth import Score, Truth
from flambeau.data.generated.writing import generate_clicks

__all__ = ["ClickLog", "Score", "Truth", "generate_clicks"]
