-- in: JSON list of sequences.
DELETE FROM jobyard_done WHERE sequence IN (SELECT value FROM json_each(?))
