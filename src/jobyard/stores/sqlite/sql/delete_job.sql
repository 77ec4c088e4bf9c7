-- in: sequence.
DELETE FROM jobyard_job WHERE sequence = ?
