"""Executor for untrusted programs: the client side of the sandbox daemon."""
