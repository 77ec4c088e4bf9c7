-- in: queue, name after which to start, how many. out: group rows by name.
SELECT name, own_limit, paused, waiting, delayed, running FROM jobyard_group
WHERE queue = ? AND name > ? AND (waiting + delayed + running > 0 OR own_limit IS NOT NULL OR paused = 1)
ORDER BY name LIMIT ?
