-- in: id.
DELETE FROM jobyard_worker WHERE id = ?
