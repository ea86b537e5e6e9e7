"""Data sources, one file per format; `opening` chooses among them."""
