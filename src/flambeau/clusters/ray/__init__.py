"""Agents as actors on a Ray cluster."""
