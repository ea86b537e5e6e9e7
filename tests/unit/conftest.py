"""Generated cases are the same in every run, and a busy machine makes none of them fail."""

from hypothesis import settings

settings.register_profile("unit", deadline=None, derandomize=True, database=None)
settings.load_profile("unit")
