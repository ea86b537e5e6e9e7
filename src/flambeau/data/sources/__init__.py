"""One file per format; `opening` chooses among them."""
