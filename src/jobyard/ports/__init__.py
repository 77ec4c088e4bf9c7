"""Contracts of stores, executors, observers and clocks, written in their docstrings."""
