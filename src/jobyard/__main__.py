"""`python -m jobyard`: the command line."""

from jobyard.cli import main

main()
