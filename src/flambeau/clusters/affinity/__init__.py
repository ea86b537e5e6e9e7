"""Which cores each rank is bound to, how many threads it has, and how both are shown."""
