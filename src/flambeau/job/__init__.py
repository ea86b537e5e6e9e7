"""The composition root: from settings to processes to a result.

Only this package puts concrete parts together: clusters, strategies, sources, checkpoints.
"""
