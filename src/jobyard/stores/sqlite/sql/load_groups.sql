-- in: queue, JSON list of names. out: name, own_limit, paused, turn, waiting, delayed, running.
SELECT name, own_limit, paused, turn, waiting, delayed, running FROM jobyard_group
WHERE queue = ? AND name IN (SELECT value FROM json_each(?))
