"""The index from ids to rows: hashing, growing sub-tables, and the distinct ids of a batch."""
