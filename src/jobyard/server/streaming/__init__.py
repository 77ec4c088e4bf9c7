"""Server-sent events: encoding, subscribers, throttling, one broadcaster per process."""
