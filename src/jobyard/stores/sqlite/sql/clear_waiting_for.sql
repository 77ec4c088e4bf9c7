-- in: sequence.
UPDATE jobyard_job SET waiting_for = NULL WHERE sequence = ?
