"""Puts the parts together: the only floor that names concrete classes."""
