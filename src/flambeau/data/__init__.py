"""Batches, the sources they come from, and what is done to them before training."""
