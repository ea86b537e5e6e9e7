"""Model files for `flambeau angel make`: one TorchScript module each, by Angel's contract."""
