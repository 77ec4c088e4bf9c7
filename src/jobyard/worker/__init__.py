"""The worker: claims jobs, runs them, settles them, and shuts down gracefully."""
