"""Formats of text: CSV, Criteo, libsvm, libffm and their kin."""
