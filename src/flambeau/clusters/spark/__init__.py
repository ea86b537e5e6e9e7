"""Agents as tasks of a Spark stage."""
