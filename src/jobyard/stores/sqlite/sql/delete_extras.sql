-- in: JSON list of sequences.
DELETE FROM jobyard_extra WHERE sequence IN (SELECT value FROM json_each(?))
