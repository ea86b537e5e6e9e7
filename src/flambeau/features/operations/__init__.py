"""The operations, by what they work on."""
