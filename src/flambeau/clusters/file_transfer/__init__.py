"""Files of a run on their way to and from agents that do not share the driver's disk."""
