-- job {0} stands in line at {1}, but its priority says {2}
SELECT j.sequence, r.ord, (-j.priority::bigint << 42) + j.sequence FROM {schema}.jobyard_ready r
JOIN {schema}.jobyard_job j ON j.sequence = r.ord & 4398046511103
WHERE r.ord <> (-j.priority::bigint << 42) + j.sequence OR r.queue <> j.queue OR r.group_name <> j.group_name
