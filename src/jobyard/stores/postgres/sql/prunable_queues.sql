-- out: queues that hold more finished jobs than they keep, by name.
SELECT k.name FROM {schema}.jobyard_queue k
WHERE k.completed > k.keep_completed OR k.failed + k.cancelled > k.keep_failed ORDER BY k.name
