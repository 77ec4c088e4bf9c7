-- in: queue, name. out: own_limit, paused, turn, waiting, delayed, running.
SELECT own_limit, paused, turn, waiting, delayed, running FROM jobyard_group WHERE queue = ? AND name = ?
