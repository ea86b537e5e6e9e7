"""One rank from `init` to `shutdown`: connecting to the other ranks, and joining its parts."""
