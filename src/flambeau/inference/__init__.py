"""Using a trained model: predictions as Arrow batches and files."""
