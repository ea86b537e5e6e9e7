"""Bridges for programs and jobs that were written for other systems."""

from flambeau.compat.aliases import alias

__all__ = ["alias"]
