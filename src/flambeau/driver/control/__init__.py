"""The controller of a running job: its phases, agents, generations and restarts."""
