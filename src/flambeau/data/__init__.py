"""Data sources, and batches on their way from a source to the model."""
