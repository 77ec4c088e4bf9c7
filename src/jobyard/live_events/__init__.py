"""Live events: what happens to jobs, published by each process through the store for its subscribers."""
