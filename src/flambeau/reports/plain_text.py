"""Texts of users as terminals may show them."""


def printable(text: str) -> str:
    """Return a text in one line, without characters that control a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
