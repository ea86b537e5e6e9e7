"""How compiled code is made, and what all of it needs."""
