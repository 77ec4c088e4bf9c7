"""Executor for Python functions: async ones on the event loop, others in threads."""
