"""Bridges for programs and jobs that were written for other systems."""
