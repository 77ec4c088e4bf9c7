"""The sandbox daemon, its self-test and its attacks; imports nothing of the queue."""
