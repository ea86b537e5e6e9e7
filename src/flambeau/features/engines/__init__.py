"""Pipelines on engine data: Spark DataFrames and Ray Datasets.

Work on the rows is a function of record batches that the engine calls in its own tasks. Statistics
are gathered there and merged in this process; rows to prepare are first written to files.
"""
