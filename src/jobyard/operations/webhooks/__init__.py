"""Completion webhooks: a second job, for each program that requests one, delivers the result."""
