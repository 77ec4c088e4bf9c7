"""A product scanner: eight platforms, workflows from files, and a web shop to scan."""
