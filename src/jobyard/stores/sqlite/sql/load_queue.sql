-- in: name. out: the whole row.
SELECT * FROM jobyard_queue WHERE name = ?
