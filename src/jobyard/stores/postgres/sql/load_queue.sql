-- in: name. out: its settings, place and counts.
SELECT k.name, k.max_running, k.max_per_group, k.paused, k.turn, k.running
FROM {schema}.jobyard_queue k WHERE k.name = $1
