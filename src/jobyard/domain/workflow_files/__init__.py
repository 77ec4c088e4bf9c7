"""Workflow files: their language, their validation, and what a run of one does next."""
