"""Transfer of a run's files to and from agents that do not share the driver's disk."""
