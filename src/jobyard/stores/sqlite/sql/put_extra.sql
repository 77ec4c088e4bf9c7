-- in: sequence, what, number, data.
INSERT OR REPLACE INTO jobyard_extra VALUES (?, ?, ?, ?)
