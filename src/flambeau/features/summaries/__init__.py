"""Statistics of each column: gathered as features are written, merged, and shown on a page."""
