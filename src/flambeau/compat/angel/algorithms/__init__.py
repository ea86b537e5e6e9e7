"""Algorithms of `flambeau angel make`: one TorchScript module each, following Angel's contract."""
