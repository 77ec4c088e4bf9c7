-- in: the whole row.
INSERT INTO jobyard_tick VALUES (?, ?, ?, ?, ?, ?, ?)
