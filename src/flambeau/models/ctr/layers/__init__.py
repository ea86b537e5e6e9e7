"""Layers that several recommenders share."""
