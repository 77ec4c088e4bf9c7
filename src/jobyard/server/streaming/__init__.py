"""Live events over HTTP: one reader of the store feeds all streams of the server."""
