"""One rank from `init` to `shutdown`: how it meets the others, and what connects its parts."""
