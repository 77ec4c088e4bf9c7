-- in: id.
DELETE FROM {schema}.jobyard_worker WHERE id = $1
