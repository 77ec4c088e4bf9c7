-- in: sequence. out: what, number, data in order.
SELECT what, number, data FROM jobyard_extra WHERE sequence = ? ORDER BY what, number
