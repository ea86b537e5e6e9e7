"""Tables in files: written while they change, searched where they are, read back."""
