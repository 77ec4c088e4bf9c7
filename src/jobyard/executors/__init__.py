"""Executors: how an attempt is run."""
