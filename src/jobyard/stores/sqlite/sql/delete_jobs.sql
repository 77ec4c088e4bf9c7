-- in: JSON list of sequences.
DELETE FROM jobyard_job WHERE sequence IN (SELECT value FROM json_each(?))
