"""Building blocks that several stores use: waiters, polling, tick rules, row codecs, named SQL, limits."""
