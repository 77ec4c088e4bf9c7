"""Live events: what happens to jobs, passed from the process where it happens to every subscriber."""
