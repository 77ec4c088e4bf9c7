-- in: name, number after which to start, how many.
SELECT number, at, data FROM jobyard_log WHERE name = ? AND number > ? ORDER BY number LIMIT ?
