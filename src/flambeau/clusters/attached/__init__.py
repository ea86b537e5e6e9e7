"""Processes that a launcher has started: who they are, and how they meet."""
