"""Strategies: how the replicas of a model agree."""
