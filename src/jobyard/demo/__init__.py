"""Fakes of the systems that jobyard talks to, for demonstrations and tests."""
