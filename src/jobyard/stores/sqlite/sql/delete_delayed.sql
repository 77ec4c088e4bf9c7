-- in: run_at, sequence.
DELETE FROM jobyard_delayed WHERE run_at = ? AND sequence = ?
