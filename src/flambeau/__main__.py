"""`python -m flambeau`: the command line."""

from flambeau.cli import main

main()
