"""Views of runs, read from their files while they run or later, compared, and drawn."""
