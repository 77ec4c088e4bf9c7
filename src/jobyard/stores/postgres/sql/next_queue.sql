-- in: name. out: the next queue by name, if any.
SELECT k.name FROM {schema}.jobyard_queue k WHERE k.name > $1 ORDER BY k.name LIMIT 1
