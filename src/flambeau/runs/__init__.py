"""A run in one process: opening its model and data, predictions, evaluation and export."""
