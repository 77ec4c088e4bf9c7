-- in: queue, bucket, how many, finished at or before. out: sequence, state, flags; oldest first.
-- The limit comes first: while everything is too young to go, only so many rows are looked at.
SELECT sequence, state, flags FROM
  (SELECT sequence, state, flags, finished_at FROM jobyard_done WHERE queue = ? AND bucket = ? ORDER BY finish LIMIT ?)
WHERE finished_at <= ?
