"""Recommender models: ids and numbers in, logits out."""
