"""A run in one process: its model and data opened, scored, evaluated, exported."""
