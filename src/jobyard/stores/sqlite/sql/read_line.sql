-- in: queue, how many. out: groups with a due job and room, nearest the front first.
SELECT name, own_limit, paused, turn, waiting, delayed, running FROM jobyard_group
WHERE queue = ? AND open = 1 ORDER BY turn LIMIT ?
