-- in: queue, turn, group, cap. out: how many open groups stand before.
SELECT count(*) FROM (SELECT 1 FROM jobyard_group WHERE queue = ? AND open = 1 AND turn < ? AND name <> ? LIMIT ?)
