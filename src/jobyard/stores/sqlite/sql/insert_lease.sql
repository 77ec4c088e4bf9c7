-- in: the whole row but external_id and cancel.
INSERT INTO jobyard_lease VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)
