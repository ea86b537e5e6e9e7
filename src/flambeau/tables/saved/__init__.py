"""Tables in files: written while they change, searched in place, and read back."""
