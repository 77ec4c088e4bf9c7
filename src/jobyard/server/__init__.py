"""The REST API, live events and health, over HTTP."""
