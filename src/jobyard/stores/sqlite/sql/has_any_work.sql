-- out: a row if some group of any queue is eligible.
SELECT 1 FROM jobyard_queue q
WHERE q.waiting > 0 AND q.paused = 0 AND (q.max_running IS NULL OR q.running < q.max_running)
  AND EXISTS (SELECT 1 FROM jobyard_group g INDEXED BY jobyard_line WHERE g.queue = q.name AND g.open = 1) LIMIT 1
