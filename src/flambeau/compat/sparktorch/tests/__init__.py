"""Modules that SparkTorch's own tests import."""
