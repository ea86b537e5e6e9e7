"""How the processes of a job agree: who is there, what each trains on, and when it ends."""
