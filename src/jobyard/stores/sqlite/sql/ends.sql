-- in: JSON list of ids. out: those that have ended (1) or are gone (0).
SELECT e.value, j.sequence IS NOT NULL FROM json_each(?) e LEFT JOIN jobyard_job j ON j.id = e.value
  LEFT JOIN jobyard_done d ON d.sequence = j.sequence
WHERE j.sequence IS NULL OR d.sequence IS NOT NULL
