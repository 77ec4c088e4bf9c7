-- in: run_at, sequence.
UPDATE jobyard_job SET used = 0, deaths = 0, run_at = ?, waiting_for = NULL, signal = NULL WHERE sequence = ?
