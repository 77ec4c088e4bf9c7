-- in: own_limit, paused, turn, waiting, delayed, running, open, queue, name.
UPDATE jobyard_group SET own_limit = ?, paused = ?, turn = ?, waiting = ?, delayed = ?, running = ?, open = ?
WHERE queue = ? AND name = ?
