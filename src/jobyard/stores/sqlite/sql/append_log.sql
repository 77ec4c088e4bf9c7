-- in: name, at, data. out: its number, beyond those that were trimmed.
INSERT INTO jobyard_log (name, at, data, number)
  SELECT ?1, ?2, ?3, 1 + max(coalesce((SELECT max(number) FROM jobyard_log WHERE name = ?1), 0),
    coalesce((SELECT number FROM jobyard_trimmed WHERE name = ?1), 0)) RETURNING number
