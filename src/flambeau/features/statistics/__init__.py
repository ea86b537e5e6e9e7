"""Statistics of training rows, gathered shard by shard and merged."""
