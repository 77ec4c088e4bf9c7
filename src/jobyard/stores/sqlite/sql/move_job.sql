-- in: run_at, sequence. Its time was set anew; it waits for no signal.
UPDATE jobyard_job SET run_at = ?, waiting_for = NULL WHERE sequence = ?
