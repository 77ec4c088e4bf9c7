"""Findings of `jobyard check` and `jobyard doctor`: what they look at, and how it is printed."""
