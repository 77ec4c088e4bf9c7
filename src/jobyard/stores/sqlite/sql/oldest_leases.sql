-- out: queue, since when the job that runs longest there is running.
SELECT queue, min(started_at) FROM jobyard_lease GROUP BY queue
