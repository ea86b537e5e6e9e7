"""Weights and tables that live in server processes, which the workers share.

The dense weights of a model are one flat vector, cut into equal ranges; each server shard owns one
range and runs the user's own optimizer on it.
"""
