-- in: queue, turn, group, cap. out: how many open groups stand before.
SELECT count(*) FROM (SELECT FROM {schema}.jobyard_group g
  WHERE g.queue = $1 AND g.open AND g.turn < $2 AND g.name <> $3 LIMIT $4) s
