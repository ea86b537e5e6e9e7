"""Text formats: CSV, Criteo, libsvm, libffm and related ones."""
