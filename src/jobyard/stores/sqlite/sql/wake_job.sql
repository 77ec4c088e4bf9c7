-- in: run_at, signal data, sequence.
UPDATE jobyard_job SET run_at = ?, waiting_for = NULL, signal = ? WHERE sequence = ?
