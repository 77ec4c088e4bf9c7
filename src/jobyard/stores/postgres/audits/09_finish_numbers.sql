-- finished job {0} of queue {1} has no number{2}
SELECT d.sequence, d.queue, '' FROM {schema}.jobyard_done d
WHERE d.finish = 0 AND NOT EXISTS (SELECT FROM {schema}.jobyard_inbox i WHERE i.queue = d.queue AND i.ended = d.sequence)
