-- in: queue, name after which to start (NULL: from the jobs without a group on), how many. out: groups with something to
-- show, by name.
SELECT g.name, g.own_limit, g.paused, g.waiting, g.delayed, g.running FROM {schema}.jobyard_group g
WHERE g.queue = $1 AND ($2::text IS NULL OR g.name > $2)
  AND (g.waiting <> 0 OR g.delayed <> 0 OR g.running <> 0 OR g.paused OR g.own_limit IS NOT NULL)
ORDER BY g.name LIMIT $3
