"""Completion webhooks: a job beside each program that asks for one, which delivers its result."""
