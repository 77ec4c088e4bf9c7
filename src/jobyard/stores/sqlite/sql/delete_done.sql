-- in: sequence.
DELETE FROM jobyard_done WHERE sequence = ?
