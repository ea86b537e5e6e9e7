"""Decisions shared by the processes of a job: membership, data plans, rounds and failures."""
