"""The operations, grouped by the data they work on."""
