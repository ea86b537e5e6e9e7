"""From ids to positions: hashing, the growing index, distinct ids of a batch."""
