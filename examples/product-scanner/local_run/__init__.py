"""Everything on this machine with one command: the shop, a server, a worker for each platform, and jobs."""
