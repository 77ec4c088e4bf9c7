"""`python -m jobyard`: the command line."""

from jobyard.main.cli import main

main()
