"""Events as logs, metrics and traces."""
