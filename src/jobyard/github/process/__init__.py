"""The launcher for one machine: each runner is a process with a folder of its own."""
