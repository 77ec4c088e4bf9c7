-- in: queue, name. out: its limit, place and counts.
SELECT g.own_limit, g.paused, g.turn, g.waiting, g.running FROM {schema}.jobyard_group g
WHERE g.queue = $1 AND g.name = $2
