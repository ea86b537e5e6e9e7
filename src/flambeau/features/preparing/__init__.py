"""The preparation of a folder of features."""
