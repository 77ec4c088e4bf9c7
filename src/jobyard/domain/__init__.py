"""The rules of the product, pure: no I/O, no clock, no log."""
