-- in: used, deaths to add, run_at, waiting_for, signal, sequence.
UPDATE jobyard_job SET used = ?, deaths = deaths + ?, run_at = ?, waiting_for = ?, signal = ? WHERE sequence = ?
