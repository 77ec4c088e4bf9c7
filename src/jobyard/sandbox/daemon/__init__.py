"""The sandbox's own process: takes programs from its socket, runs each in a place of its own, tells how it ended."""
