"""Wakes for due instants and has the store decide each of them once."""
