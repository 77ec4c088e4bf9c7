-- in: names. Unknown queues begin with default settings.
INSERT INTO {schema}.jobyard_queue (name) SELECT n FROM unnest($1::text[]) n
WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_queue k WHERE k.name = n) ORDER BY n ON CONFLICT DO NOTHING
