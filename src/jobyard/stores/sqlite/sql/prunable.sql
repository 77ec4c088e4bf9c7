-- in: queue, bucket, finished at or before, how many. out: sequence, state, flags; oldest first.
SELECT sequence, state, flags FROM jobyard_done
WHERE queue = ? AND bucket = ? AND finished_at <= ? ORDER BY finish LIMIT ?
