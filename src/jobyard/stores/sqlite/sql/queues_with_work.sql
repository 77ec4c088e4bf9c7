-- out: names of queues that have a due job.
SELECT name FROM jobyard_queue WHERE waiting > 0
