-- in: as jobyard_extend. out: places of the keys that no longer hold.
SELECT o FROM {schema}.jobyard_extend($1, $2, $3, $4, $5, $6) o
