"""The engines that hold jobs; each performs the same rule in its own way."""
