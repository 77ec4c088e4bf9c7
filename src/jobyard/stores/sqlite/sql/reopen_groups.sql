-- in: the queue's max_per_group twice, queue. After that setting changed: who has room of its own.
UPDATE jobyard_group SET open = waiting > 0 AND paused = 0 AND
  (own_limit IS NOT NULL AND running < own_limit OR own_limit IS NULL AND (name = '' OR ? IS NULL OR running < ?))
WHERE queue = ?
