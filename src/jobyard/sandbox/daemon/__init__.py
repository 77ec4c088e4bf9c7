"""The sandbox daemon: accepts programs on a Unix socket, runs each in a box of its own and returns the result."""
