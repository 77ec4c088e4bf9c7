-- in: JSON list of sequences.
DELETE FROM jobyard_lease WHERE sequence IN (SELECT value FROM json_each(?))
