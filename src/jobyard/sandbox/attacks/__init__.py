"""Attacks on a sandbox, as data, and the runner that checks that each is contained."""
