"""The graph of a workflow file as an SVG image."""
