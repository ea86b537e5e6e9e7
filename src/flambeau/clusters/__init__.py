"""Where processes run. An engine only places agents; an agent starts the roles.

Nothing here imports torch: an agent must start in a moment and stay small.
"""
