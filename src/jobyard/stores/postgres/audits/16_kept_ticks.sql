-- schedule {0}: kept says {1} ticks, counted are {2}
SELECT a.schedule, a.kept, count(t.at) FROM {schema}.jobyard_armed a
LEFT JOIN {schema}.jobyard_tick t ON t.schedule = a.schedule AND t.at >= a.kept_from
GROUP BY a.schedule, a.kept HAVING count(t.at) <> a.kept OR count(t.at) > 100
