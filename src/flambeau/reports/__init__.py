"""A run as people look at it: read from its files while it runs or later, compared, and drawn."""
