-- in: sequence, what. out: number, data in order.
SELECT number, data FROM jobyard_extra WHERE sequence = ? AND what = ? ORDER BY number
