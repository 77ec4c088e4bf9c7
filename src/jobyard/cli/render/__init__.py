"""Tables, pages and JSON: everything that commands print."""
