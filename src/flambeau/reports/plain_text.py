"""Sanitized text from users for terminals."""


def printable(text: str) -> str:
    """Return a text as one line, with control characters replaced by spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
