"""Untrusted programs: a thin executor here, and the daemon that holds them, apart from everything of the queue."""
