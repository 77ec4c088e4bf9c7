"""The measured scripts of the peers: each runs in its own environment and prints its figures as JSON."""
