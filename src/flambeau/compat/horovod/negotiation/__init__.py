"""Agreement of all ranks on the next operations, by name. The controller runs in rank 0."""
