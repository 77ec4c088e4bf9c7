"""The verbs of the product: submit, operate, read."""
