"""Processes that a launcher has started: their identities, and how they connect."""
