-- out: the earliest run_at that is not yet due, or NULL.
SELECT run_at FROM jobyard_delayed ORDER BY run_at LIMIT 1
