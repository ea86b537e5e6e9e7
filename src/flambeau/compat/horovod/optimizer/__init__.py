"""Optimizers that apply the same update on all ranks."""
