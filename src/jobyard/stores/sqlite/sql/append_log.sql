-- in: name, at, data, name. out: its number.
INSERT INTO jobyard_log (name, at, data, number)
  SELECT ?, ?, ?, coalesce(max(number), 0) + 1 FROM jobyard_log WHERE name = ? RETURNING number
