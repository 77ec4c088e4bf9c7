"""Where work comes in from outside: parse, call a service, render."""
