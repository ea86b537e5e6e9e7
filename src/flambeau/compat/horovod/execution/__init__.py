"""Execution of agreed operations in the agreed order, independent of their negotiation."""
