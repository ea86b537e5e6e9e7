"""Optimizers that make the same step on all ranks."""
