-- in: run_at, sequence.
INSERT INTO jobyard_delayed VALUES (?, ?)
