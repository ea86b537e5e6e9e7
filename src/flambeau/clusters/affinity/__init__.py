"""Core bindings and thread counts of ranks, and a picture of both."""
