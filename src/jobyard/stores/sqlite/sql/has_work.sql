-- in: JSON list of queues, empty for all. out: a row if some group there is eligible.
SELECT 1 FROM jobyard_queue q
WHERE q.waiting > 0 AND q.paused = 0 AND (q.max_running IS NULL OR q.running < q.max_running)
  AND (?1 = '[]' OR q.name IN (SELECT value FROM json_each(?1)))
  AND EXISTS (SELECT 1 FROM jobyard_group g WHERE g.queue = q.name AND g.open = 1) LIMIT 1
