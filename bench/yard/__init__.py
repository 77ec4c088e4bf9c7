"""jobyard's own rows, through its public API only; the engines differ in their URL."""
