"""A yard on a server: the same verbs, over HTTP."""
