-- in: JSON list of sequences. out: the leases that exist, with their tokens.
SELECT sequence, token, queue, group_name, attempt, worker, started_at, flags, cancel FROM jobyard_lease
WHERE sequence IN (SELECT value FROM json_each(?))
