-- in: sequence, what. out: the next free number.
SELECT coalesce(max(number), 0) + 1 FROM jobyard_extra WHERE sequence = ? AND what = ?
