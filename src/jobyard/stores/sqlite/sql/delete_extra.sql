-- in: sequence.
DELETE FROM jobyard_extra WHERE sequence = ?
