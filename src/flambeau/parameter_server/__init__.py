"""Weights and tables in server processes that all workers share.

The dense weights of a model are one flat vector, cut into ranges of nearly equal length; each
server shard owns one range and runs the user's own optimizer on it.
"""
