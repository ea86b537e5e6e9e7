"""Execution of what is agreed, in the agreed order. Nothing here knows how it was agreed."""
