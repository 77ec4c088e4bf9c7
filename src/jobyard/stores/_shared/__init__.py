"""What several stores need: waiters, polling, tick rules, rows."""
