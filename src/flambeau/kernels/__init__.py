"""Compilation of kernels, and what all kernels need."""
