"""Agents on hosts that are reached by ssh."""
