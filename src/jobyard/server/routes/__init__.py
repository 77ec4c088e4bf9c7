"""One module per resource; each lists its routes as data."""
