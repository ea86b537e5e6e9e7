"""Clusters, on which processes run. An engine only places agents; an agent starts the roles.

Nothing here imports torch: an agent must start quickly and stay small.
"""
