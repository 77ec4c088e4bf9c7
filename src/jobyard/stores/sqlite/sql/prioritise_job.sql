-- in: priority, sequence.
UPDATE jobyard_job SET priority = ? WHERE sequence = ?
