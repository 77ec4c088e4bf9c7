"""The sandbox: a daemon that runs untrusted programs, and the attacks that test it. Imports nothing else of jobyard."""
