"""Stores of jobs: memory, SQLite, PostgreSQL, Redis, and queues spread over several of them."""
