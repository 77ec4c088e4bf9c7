-- log {0} ends with {1}, its last entry is {2}
SELECT l.name, e.number, max(l.number) FROM {schema}.jobyard_log l LEFT JOIN {schema}.jobyard_log_end e ON e.name = l.name
GROUP BY l.name, e.number HAVING e.number IS NULL OR max(l.number) > e.number
