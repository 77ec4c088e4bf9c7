-- in: queue, name, own_limit, paused, turn, waiting, delayed, running, open.
INSERT INTO jobyard_group VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
