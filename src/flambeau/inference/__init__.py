"""Use of a trained model: predictions as Arrow batches and files, and exports."""
