"""Counts with singular or plural nouns, for messages."""


def number_of(count: int, thing: str, things: str | None = None) -> str:
    """Return `1 row`, `2 rows` or, with the plural as `things`, `1,000 batches`."""
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"
