"""One rank from `init` to `shutdown`: its rendezvous with the other ranks, and its engine."""
