-- schedule {0} has decided {1} ticks beyond the last that it knows ({2})
SELECT t.schedule, count(*), coalesce(a.decided_until::text, 'it is not armed') FROM {schema}.jobyard_tick t
LEFT JOIN {schema}.jobyard_armed a ON a.schedule = t.schedule
WHERE a.schedule IS NULL OR t.at > a.decided_until GROUP BY t.schedule, a.decided_until
