-- in: queue, group, place, cap. out: how many due jobs of the group go before.
SELECT count(*) FROM (SELECT FROM {schema}.jobyard_ready r
  WHERE r.queue = $1 AND r.group_name = $2 AND r.ord < $3 LIMIT $4) s
