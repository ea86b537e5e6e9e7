"""Agreement of all ranks on what to execute next, by name. Rank 0 holds the controller."""
